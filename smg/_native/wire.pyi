"""Protobuf reader of the hot message: one Generate chunk with token ids (spec engine-contract 3.2 and 4.4)."""

def chunk(message: bytes) -> tuple[int, list[int], int, int, int] | None:
    """Read a GenerateResponse that is a plain chunk: (index, ids, prompt, completion and cached tokens).

    None for anything the generated contract should read: Complete, log probabilities, unusual encodings. Raises
    ValueError for what is no protobuf message.
    """
