"""CachedEncoder: encode a prompt, or remember how it was encoded (spec text-pipeline 3)."""

from collections.abc import Sequence

import msgspec

from smg._native.encode_cache import EncodeCache
from smg._native.id_list import joined
from smg.text.cuts import Cutter, Encoder, frame


class CacheSizes(msgspec.Struct, frozen=True):
    """Bounds of one tokenizer's caches in one process. 0 bytes turns a level off."""

    exact_entries: int = 10_000
    exact_bytes: int = 50 * 1024 * 1024
    prefix_bytes: int = 50 * 1024 * 1024


class CacheStats(msgspec.Struct, frozen=True):
    """Counters since the start, and what is held now. Metrics call them ``tokenizer_cache_*``.

    ``reused_ids`` were taken from known beginnings of texts instead of being encoded again; ``safe_tokens`` is how many
    added tokens proved to be safe cuts (0: beginnings are not cached).
    """

    exact_hits: int = 0
    exact_misses: int = 0
    exact_entries: int = 0
    exact_bytes: int = 0
    prefix_hits: int = 0
    prefix_misses: int = 0
    prefix_entries: int = 0
    prefix_bytes: int = 0
    reused_ids: int = 0
    safe_tokens: int = 0


class CachedEncoder:
    """Encodes as ``encoder`` does, and never differently; see ``cuts.Cutter`` for ``literals`` and ``template``.

    First a text seen before (exact), then the longest known beginning of it, cut behind an added token, so that only
    the rest is encoded (prefix). May be used from several threads at once. Construction tries the tokenizer out, which
    takes up to half a second for large sets of added tokens: do it where the tokenizer is loaded.
    """

    def __init__(
        self, encoder: Encoder, literals: dict[str, int], sizes: CacheSizes | None = None, template: str = ""
    ) -> None:
        sizes = sizes or CacheSizes()
        self._encoder = encoder
        self._exact = EncodeCache(sizes.exact_bytes, sizes.exact_entries)
        self._prefixes = EncodeCache(sizes.prefix_bytes)
        self._cutter = Cutter(encoder, literals if sizes.prefix_bytes else {}, template)
        self._frame = frame(encoder) if self._cutter.safe else None
        self._reused = 0

    def encode(self, text: str, add_special_tokens: bool = False) -> Sequence[int]:
        """Encode ``text``; many ids are an array (``id_list``). Raises what the encoder raises."""
        if not self._exact.max_bytes:
            return self._encode_rest(text, add_special_tokens)
        try:
            ids = self._exact.get(text, add_special_tokens)
        except UnicodeEncodeError:
            # Unpaired surrogates: what becomes of them is for the tokenizer to say.
            return self._encoder.encode(text, add_special_tokens)
        if ids is None:
            ids = self._encode_rest(text, add_special_tokens)
            self._exact.put(text, add_special_tokens, ids)
        return ids

    def stats(self) -> CacheStats:
        """Return the counters."""
        exact, prefixes = self._exact, self._prefixes
        return CacheStats(
            exact_hits=exact.hits,
            exact_misses=exact.misses,
            exact_entries=exact.entries,
            exact_bytes=exact.nbytes,
            prefix_hits=prefixes.hits,
            prefix_misses=prefixes.misses,
            prefix_entries=prefixes.entries,
            prefix_bytes=prefixes.nbytes,
            reused_ids=self._reused,
            safe_tokens=len(self._cutter.safe),
        )

    def _encode_rest(self, text: str, add_special_tokens: bool) -> Sequence[int]:
        """Encode what lies behind the longest known beginning, and remember the beginnings up to the last cut."""
        if not self._cutter.safe or (add_special_tokens and self._frame is None):
            return self._encoder.encode(text, add_special_tokens)
        data = text.encode()
        found = self._cutter.find(data)
        chosen = self._cutter.choose(found, len(data))
        if not chosen:
            return self._encoder.encode(text, add_special_tokens)
        known = self._prefixes.longest(data, [found[index][0] for index in chosen])
        number, head = (-1, []) if known is None else known
        behind = chosen[number] + 1 if number >= 0 else 0
        start = found[behind - 1][0] if behind else 0
        tail = self._encoder.encode(data[start:].decode() if start else text)
        counts = self._cutter.counts(found[behind:], tail)
        if counts is None:
            return self._encoder.encode(text, add_special_tokens)
        ids = joined(head, tail)
        kept = chosen[max(number, 0) :]
        totals = [len(head) + (counts[index - behind] if index >= behind else 0) for index in kept]
        self._prefixes.extend(data, [found[index][0] for index in kept], totals, ids)
        self._reused += len(head)
        if add_special_tokens and self._frame is not None:
            return [*self._frame[0], *ids, *self._frame[1]]
        return ids
