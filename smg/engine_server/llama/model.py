"""One GGUF model and its KV memory: ``slots`` independent sequences, decoded together in mixed batches.

Logits are the same to the last bit alone and in any batch, whatever the chunking and also after a prefix copy. Two
measures see to that (SmolLM2-135M on x86):

* Each slot has a KV stream of its own and at most ``EXACT_ROWS`` rows per batch: from 64 rows on, llama.cpp's CPU
  attention takes another code path, whose sums are grouped differently (logits then differ by up to 1).
* Float weights are multiplied in one way for a single row and in another for several (logits differ by 0.02). Where a
  trial at start shows that, no matrix product is ever of one row: a lone row gets a second one that is thrown away,
  and prompts are decoded apart from the rest.
"""

import ctypes as c
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from smg.engine_server.llama import library

Logits: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]

EXACT_ROWS = 63
BATCH_ROWS = 512
# llama.cpp's own limit on sequences of one context.
MAX_SLOTS = 256
# llama.cpp's token attributes unknown, unused and control.
_NO_TEXT = 1 << 0 | 1 << 1 | 1 << 3


class DecodeError(Exception):
    """llama.cpp could not decode a batch. The KV memory of its sequences must be trimmed to what is known good."""


class Piece(NamedTuple):
    """Consecutive tokens of one sequence for one step: ``tokens`` stand at ``position`` and following.

    ``outputs`` asks for the logits after so many of the last of them.
    """

    slot: int
    tokens: Sequence[int]
    position: int
    outputs: int


class Model:
    """A loaded model. Not thread-safe: one thread owns it after construction.

    ``context_length`` is each slot's budget in tokens, prompt and output together (0: the model's own, at most 4096).
    Memory grows with ``slots * context_length``.

    Raises:
        RuntimeError: too many slots, no such file, not a model, a longer context than it was trained for, or not
            enough memory.
    """

    def __init__(self, path: Path, *, slots: int, context_length: int = 0, threads: int = 1) -> None:
        if not 1 <= slots <= MAX_SLOTS:
            raise RuntimeError(f"slots must be between 1 and {MAX_SLOTS}, got {slots}")
        if not path.is_file():
            raise RuntimeError(f"there is no model file {path}")
        self._lib = library.load()
        model_params = self._lib.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self._model: Any = self._lib.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            raise RuntimeError(f"{path} is not a GGUF model that llama.cpp can load")
        self.path = path
        self.slots = slots
        self.context_length = self._budget(context_length)
        self._context: Any = self._lib.llama_init_from_model(self._model, self._context_params(threads))
        if not self._context:
            self._lib.llama_model_free(self._model)
            raise RuntimeError(f"no memory for {slots} slots of {self.context_length} tokens")
        self._memory = self._lib.llama_get_memory(self._context)
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self._batch = self._lib.llama_batch_init(BATCH_ROWS + 1, 0, 1)
        self.vocab_size: int = self._lib.llama_vocab_n_tokens(self._vocab)
        self._paired = self._needs_pairs()
        self.end_ids = self._end_ids()
        self.bos_id: int = self._lib.llama_vocab_bos(self._vocab)
        self.pad_id: int = self._lib.llama_vocab_pad(self._vocab)

    def _budget(self, wanted: int) -> int:
        trained: int = self._lib.llama_model_n_ctx_train(self._model)
        if wanted > trained:
            self._lib.llama_model_free(self._model)
            raise RuntimeError(f"a context of {wanted} tokens was asked for; the model was trained for {trained}")
        return wanted or min(trained, 4096)

    def _context_params(self, threads: int) -> Any:
        params = self._lib.llama_context_default_params()
        params.n_ctx = self.slots * self.context_length
        params.n_batch = params.n_ubatch = BATCH_ROWS + 1
        params.n_seq_max = self.slots
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = False
        return params

    def _end_ids(self) -> tuple[int, ...]:
        """Ids that end a generation, the model's own end-of-sequence id first."""
        eos: int = self._lib.llama_vocab_eos(self._vocab)
        others = [id for id in range(self.vocab_size) if id != eos and self._lib.llama_vocab_is_eog(self._vocab, id)]
        return (eos, *others) if eos >= 0 else tuple(others)

    @property
    def handle(self) -> Any:
        """llama.cpp's model, for further contexts on the same weights."""
        return self._model

    def _needs_pairs(self) -> bool:
        """Try whether this model gives other logits to a row alone than to the same row beside a second one."""
        token = 0
        self._paired = False
        alone = self.step([Piece(0, [token], 0, 1)])[0][0].copy()
        self.trim(0, 0)
        beside = self.step([Piece(0, [token, token], 0, 2)])[0][0].copy()
        # Company must be dropped again, which recurrent models can't.
        droppable = self.trim(0, 1) == 1
        self.trim(0, 0)
        return droppable and not np.array_equal(alone, beside)

    def step(self, pieces: Sequence[Piece]) -> dict[int, list[Logits]]:
        """Decode ``pieces`` (one per slot, at most BATCH_ROWS tokens together).

        Returns by slot, for pieces with outputs, that many rows of logits: float32, (vocab_size,), valid until the
        next step.

        Raises:
            DecodeError: nothing of the batch can be relied on.
        """
        if not self._paired:
            return self._decode(pieces)
        out: dict[int, list[Logits]] = {}
        for group in paired_groups(pieces):
            for slot, rows in self._decode(group, paired=True).items():
                # A further decode overwrites the buffer these rows are in.
                out[slot] = [row.copy() for row in rows]
        return out

    def _decode(self, pieces: Sequence[Piece], paired: bool = False) -> dict[int, list[Logits]]:
        row, first_outputs = 0, {}
        for piece in pieces:
            count = len(piece.tokens)
            first_outputs[piece.slot] = row + count - piece.outputs
            row = self._fill(row, piece)
        lone = paired and len(pieces) == 1 and row == 1
        if lone:
            # There is always room for it: the last token of a context is sampled, never decoded.
            after = Piece(pieces[0].slot, pieces[0].tokens, pieces[0].position + 1, pieces[0].outputs)
            row = self._fill(row, after)
        elif paired and len(pieces) == 1 and pieces[0].outputs == 1:
            self._batch.logits[row - 2] = 1
        self._batch.n_tokens = row
        status = self._lib.llama_decode(self._context, self._batch)
        if status != 0:
            raise DecodeError(f"llama.cpp could not decode a batch of {row} tokens (status {status})")
        if lone:
            self.trim(pieces[0].slot, pieces[0].position + 1)
        return {
            piece.slot: [self._logits(first_outputs[piece.slot] + place) for place in range(piece.outputs)]
            for piece in pieces
            if piece.outputs
        }

    def _fill(self, row: int, piece: Piece) -> int:
        """Write ``piece`` into the batch from ``row`` on; returns the row after."""
        batch = self._batch
        silent = len(piece.tokens) - piece.outputs
        for offset, token in enumerate(piece.tokens):
            batch.token[row] = token
            batch.pos[row] = piece.position + offset
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = piece.slot
            batch.logits[row] = offset >= silent
            row += 1
        return row

    def _logits(self, row: int) -> Logits:
        pointer = self._lib.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(pointer, shape=(self.vocab_size,))

    def trim(self, slot: int, length: int) -> int:
        """Keep the first ``length`` tokens of a slot; returns how many remain (0 where a model can't drop a tail)."""
        if self._lib.llama_memory_seq_rm(self._memory, slot, length, -1):
            return length
        self._lib.llama_memory_seq_rm(self._memory, slot, -1, -1)
        return 0

    def copy(self, source: int, target: int, length: int) -> int:
        """Make ``target`` hold the first ``length`` tokens of ``source``; returns how many it holds."""
        self._lib.llama_memory_seq_rm(self._memory, target, -1, -1)
        self._lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        return self.trim(target, length)

    def tokenize(self, text: str) -> list[int]:
        """Ids of ``text`` by llama.cpp's own tokenizer; special tokens written in it are recognised.

        It only reads the vocabulary, so any thread may call it.
        """
        raw = text.encode()
        room = len(raw) + 2
        ids = (c.c_int32 * room)()
        count = self._lib.llama_tokenize(self._vocab, raw, len(raw), ids, room, True, True)
        return list(ids[:count])

    def pieces(self) -> list[tuple[bytes, bool]]:
        """The bytes of every id, in order, and whether they are text (control and unknown tokens are not).

        It only reads the vocabulary, so any thread may call it.
        """
        room = 256
        buffer = c.create_string_buffer(room)
        out = []
        for token in range(self.vocab_size):
            size: int = self._lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, True)
            if size < 0:  # the piece is longer: -size bytes
                room = -size
                buffer = c.create_string_buffer(room)
                size = self._lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, True)
            attributes: int = self._lib.llama_vocab_get_attr(self._vocab, token)
            out.append((buffer.raw[:size], not attributes & _NO_TEXT))
        return out

    def close(self) -> None:
        """Free everything. The model must not be used any more."""
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)


def paired_groups(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Split a batch so that llama.cpp forms no sub-batch of one row out of several pieces.

    It takes rows of neighbouring slots, the same number of each, so single rows go by runs of neighbours, and longer
    pieces alone.
    """
    out: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: piece.slot):
        last = out[-1][-1] if out else None
        if last is not None and _is_single(last) and _is_single(piece) and last.slot == piece.slot - 1:
            out[-1].append(piece)
        else:
            out.append([piece])
    return out


def _is_single(piece: Piece) -> bool:
    return len(piece.tokens) == piece.outputs == 1
