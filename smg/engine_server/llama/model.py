"""One GGUF model and its KV memory: ``slots`` independent sequences, decoded together in mixed batches.

Measured with SmolLM2-135M (Q4_1) on x86: with a KV stream of its own for each slot and at most ``EXACT_ROWS`` rows of
one sequence per batch, logits are the same to the last bit alone and in any batch, whatever the chunking and also
after a prefix copy. From 64 rows on, llama.cpp's CPU attention takes another code path, whose sums are grouped
differently (logits then differ by up to 1); it prefills about a third faster, which is what exactness costs.
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


class DecodeError(Exception):
    """llama.cpp could not decode a batch. The KV memory of its sequences must be trimmed to what is known good."""


class Piece(NamedTuple):
    """Consecutive tokens of one sequence for one step: ``tokens`` stand at ``position`` and following.

    ``sample`` asks for the logits after the last of them.
    """

    slot: int
    tokens: Sequence[int]
    position: int
    sample: bool


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
        self._batch = self._lib.llama_batch_init(BATCH_ROWS, 0, 1)
        self.vocab_size: int = self._lib.llama_vocab_n_tokens(self._vocab)
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
        params.n_batch = params.n_ubatch = BATCH_ROWS
        params.n_seq_max = self.slots
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = False
        return params

    def _end_ids(self) -> tuple[int, ...]:
        """Ids that end a generation, the model's own end-of-sequence id first."""
        eos: int = self._lib.llama_vocab_eos(self._vocab)
        others = [id for id in range(self.vocab_size) if id != eos and self._lib.llama_vocab_is_eog(self._vocab, id)]
        return (eos, *others) if eos >= 0 else tuple(others)

    def step(self, pieces: Sequence[Piece]) -> dict[int, Logits]:
        """Decode ``pieces`` (one per slot, at most BATCH_ROWS tokens together) in one batch.

        Returns the logits of each sampled piece by slot: float32, (vocab_size,), valid until the next step.

        Raises:
            DecodeError: nothing of the batch can be relied on.
        """
        batch, rows, row = self._batch, {}, 0
        for slot, tokens, position, sample in pieces:
            for offset, token in enumerate(tokens):
                batch.token[row] = token
                batch.pos[row] = position + offset
                batch.n_seq_id[row] = 1
                batch.seq_id[row][0] = slot
                batch.logits[row] = 0
                row += 1
            if sample:
                rows[slot] = row - 1
                batch.logits[row - 1] = 1
        batch.n_tokens = row
        status = self._lib.llama_decode(self._context, batch)
        if status != 0:
            raise DecodeError(f"llama.cpp could not decode a batch of {row} tokens (status {status})")
        return {slot: self._logits(index) for slot, index in rows.items()}

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

    def close(self) -> None:
        """Free everything. The model must not be used any more."""
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)
