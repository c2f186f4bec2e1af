"""Constrained decoding: which tokens may come next, by llguidance out of the xllamacpp wheel.

Its masks cost about 0.1 ms for 49,152 tokens, it works in bounded memory and time, and it refuses what it can't
express, instead of ignoring it.
"""

import ctypes as c
import weakref
from typing import Any, TypeAlias

import numpy as np

from smg.engine_server.llama import library
from smg.engine_server.llama.model import Model

Mask: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]

# llguidance's mark of ids that are no text: a grammar never allows them, except the end of sequence.
_SPECIAL = b"\xff"
_ERROR_BYTES = 1024
# Longest message for a client; the first lines of an error name the cause.
_MESSAGE_CHARS = 300


class ConstraintError(Exception):
    """A constraint that can't be compiled, or can't be followed any further; the message is for the client."""


class Guide:
    """Compiles constraints for one model's vocabulary; any thread may. Building one takes half a second.

    Raises:
        ConstraintError: the model has no end-of-sequence id, or llguidance does not take its vocabulary.
    """

    def __init__(self, model: Model) -> None:
        if not model.end_ids:
            raise ConstraintError("the model has no end of sequence, which constraints need")
        self._lib = library.load()
        self.vocab_size = model.vocab_size
        pieces = [piece if text else _SPECIAL + piece for piece, text in model.pieces()]
        lengths = (c.c_uint32 * len(pieces))(*(len(piece) for piece in pieces))
        vocabulary = library.GuideVocabulary(
            vocab_size=len(pieces),
            eos=model.end_ids[0],
            lengths=lengths,
            pieces=b"".join(pieces),
            # Only needed for tokens that are forced without sampling, which are not used here.
            tokenize_greedily=True,
        )
        error = c.create_string_buffer(_ERROR_BYTES)
        self._tokenizer: Any = self._lib.llg_new_tokenizer(vocabulary, error, _ERROR_BYTES)
        if not self._tokenizer:
            raise ConstraintError(f"no constraints with this vocabulary: {error.value.decode(errors='replace')}")
        _free_later(self, self._lib.llg_free_tokenizer, self._tokenizer)

    def compile(self, kind: str, text: str) -> "Matcher":
        """Compile ``text`` of ``kind`` json_schema, regex or lark. Raises ConstraintError."""
        if "\0" in text:
            raise ConstraintError("a constraint can't have a NUL character")
        params = library.GuideParams()
        self._lib.llg_constraint_init_set_defaults(params, self._tokenizer)
        params.log_buffer_level = params.log_stderr_level = 0
        matcher = Matcher(self, self._lib.llg_new_matcher(params, kind.encode(), text.encode()))
        matcher.check()
        return matcher


class Matcher:
    """The state of one constrained sequence. One thread at a time may use it."""

    def __init__(self, guide: Guide, handle: Any) -> None:
        # Held, because a matcher must not outlive its tokenizer.
        self._guide = guide
        self._lib = library.load()
        self._handle = handle
        self._bits = np.zeros(self._lib.llg_matcher_get_mask_byte_size(handle), dtype=np.uint8)
        _free_later(self, self._lib.llg_free_matcher, handle)

    def check(self) -> None:
        """Raise ConstraintError when the matcher is in an error state."""
        error: bytes | None = self._lib.llg_matcher_get_error(self._handle)
        if error is not None:
            raise ConstraintError(error.decode(errors="replace").strip()[:_MESSAGE_CHARS])

    def copy(self) -> "Matcher":
        """A matcher in the same state."""
        return Matcher(self._guide, self._lib.llg_clone_matcher(self._handle))

    def mask(self) -> Mask:
        """Which ids may come next: (vocab_size,). Raises ConstraintError when that takes too much to find out."""
        if self._lib.llg_matcher_compute_mask_into(self._handle, self._bits.ctypes.data, self._bits.size) != 0:
            self.check()
        return np.unpackbits(self._bits, count=self._guide.vocab_size, bitorder="little").view(np.bool_)

    def accept(self, token: int) -> None:
        """Go on by one token. Raises ConstraintError when it is not allowed."""
        if self._lib.llg_matcher_consume_token(self._handle, token) != 0:
            self.check()

    @property
    def complete(self) -> bool:
        """Whether the text so far satisfies the constraint."""
        return bool(self._lib.llg_matcher_is_accepting(self._handle))

    @property
    def stopped(self) -> bool:
        """Whether nothing but the end of the sequence can follow."""
        return bool(self._lib.llg_matcher_is_stopped(self._handle))


def _free_later(owner: object, free: Any, handle: Any) -> None:
    # Not at exit: the interpreter is half gone then, and the process's memory goes anyway.
    weakref.finalize(owner, free, handle).atexit = False
