"""Protobuf reader of the hot message: one Generate chunk with token ids (spec engine-contract 3.2 to 3.6 and 4.4)."""

from collections.abc import Iterable

class Layout:
    """Field numbers of one contract's GenerateResponse, ``chunk`` and ``complete``, and of its GenerateStreamChunk.

    A chunk with one of the fields ``cold`` (1 to 63; messages or lists) is left to the contract.
    """

    def __init__(
        self,
        *,
        chunk: int,
        complete: int,
        ids: int,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int,
        index: int,
        cold: Iterable[int] = (),
    ) -> None: ...
    def read(self, message: bytes) -> tuple[int, list[int], int, int, int] | None:
        """Read a GenerateResponse that is a plain chunk: (index, ids, prompt, completion and cached tokens).

        None for anything the generated contract should read: Complete, log probabilities, unusual encodings. Raises
        ValueError for what is no protobuf message.
        """
