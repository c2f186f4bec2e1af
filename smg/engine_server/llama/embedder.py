"""Embeddings of token sequences: the model's last hidden states, averaged over the tokens and scaled to length 1.

Chat models have no pooling of their own; the mean is what llama.cpp, too, offers for them. The states come from a
context of their own, so generation and embedding don't touch each other's memory.
"""

import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from smg.engine_server.llama import library
from smg.engine_server.llama.model import EXACT_ROWS, DecodeError, Model

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]

_NO_POOLING = 0


class Embedder:
    """Embeds with ``model``'s weights, one sequence at a time, from any thread. Allocates on first use."""

    def __init__(self, model: Model, threads: int = 1) -> None:
        self._lib = library.load()
        self._model = model
        self._threads = threads
        self._lock = threading.Lock()
        self._context: Any = None
        self._closed = False

    def embed(self, ids: Sequence[int]) -> Vector:
        """Embed ``ids`` (1 to the context length): float32, (model width,), of length 1.

        Raises:
            DecodeError: llama.cpp could not, or the embedder is closed.
        """
        with self._lock:
            if self._context is None:
                self._context = self._open()
            memory = self._lib.llama_get_memory(self._context)
            self._lib.llama_memory_clear(memory, False)
            total = np.zeros(self._lib.llama_model_n_embd(self._model.handle), dtype=np.float64)
            for start in range(0, len(ids), EXACT_ROWS):
                total += self._states(ids[start : start + EXACT_ROWS], start).sum(axis=0, dtype=np.float64)
        length = float(np.linalg.norm(total))
        return (total / (length or 1.0)).astype(np.float32)

    def _open(self) -> Any:
        if self._closed:
            raise DecodeError("the engine is stopping")
        params = self._lib.llama_context_default_params()
        params.n_ctx = self._model.context_length
        params.n_batch = params.n_ubatch = EXACT_ROWS
        params.n_threads = params.n_threads_batch = self._threads
        params.embeddings = True
        params.pooling_type = _NO_POOLING
        context = self._lib.llama_init_from_model(self._model.handle, params)
        if not context:
            raise DecodeError("no memory for embeddings")
        return context

    def _states(self, ids: Sequence[int], position: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Hidden states of ``ids``, which stand at ``position`` and following: (len(ids), width)."""
        batch = self._lib.llama_batch_init(len(ids), 0, 1)
        try:
            for row, token in enumerate(ids):
                batch.token[row], batch.pos[row] = token, position + row
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
                batch.logits[row] = 1
            batch.n_tokens = len(ids)
            status = self._lib.llama_decode(self._context, batch)
        finally:
            self._lib.llama_batch_free(batch)
        if status != 0:
            raise DecodeError(f"llama.cpp could not embed {len(ids)} tokens (status {status})")
        width = self._lib.llama_model_n_embd(self._model.handle)
        rows = [
            np.ctypeslib.as_array(self._lib.llama_get_embeddings_ith(self._context, row), shape=(width,))
            for row in range(len(ids))
        ]
        return np.array(rows, dtype=np.float32)

    def close(self) -> None:
        """Free the memory, after the call in progress; later calls raise DecodeError."""
        with self._lock:
            self._closed = True
            if self._context is not None:
                self._lib.llama_free(self._context)
                self._context = None
