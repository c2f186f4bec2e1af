"""Protobuf reader of the hot message: one Generate chunk with token ids (spec engine-contract 3.2 to 3.6 and 4.4)."""

from collections.abc import Iterable

class Layout:
    """Field numbers of one contract's GenerateResponse (the first three) and of its GenerateStreamChunk; 0: not there.

    ``label`` is a text that seldom changes. A chunk with one of the fields ``cold`` (messages or lists) is left to the
    contract. Raises ValueError for numbers that are not from 1 to 63, or are those of two fields.
    """

    def __init__(
        self,
        *,
        chunk: int,
        complete: int,
        request_id: int = 0,
        ids: int,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int,
        index: int,
        reasoning_tokens: int = 0,
        label: int = 0,
        cold: Iterable[int] = (),
    ) -> None: ...
    def read(self, message: bytes) -> tuple[int, list[int], int, int, int, int, str] | None:
        """Read a GenerateResponse that is a plain chunk.

        Returns (index, ids, prompt, completion, cached and reasoning tokens, label); None for anything the generated
        contract should read: Complete, log probabilities, unusual encodings. Raises ValueError for what is no protobuf
        message.
        """
