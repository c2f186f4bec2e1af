"""HashRing: which worker a key belongs to, the same in every process and gateway (spec routing 1.5)."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from smg._native.hashes import blake3_64
from smg.fleet.records import WorkerRecord

VIRTUAL_NODES = 150


class HashRing:
    """Worker URLs at 150 places each; a key's owner is the first at or after the key's own place."""

    def __init__(self, urls: Sequence[str]) -> None:
        places = sorted((blake3_64(f"{url}#{number}".encode()), url) for url in urls for number in range(VIRTUAL_NODES))
        self._places = [place for place, _ in places]
        self._urls = [url for _, url in places]

    def walk(self, key: str) -> Iterator[str]:
        """URLs from the key's owner on, clockwise, each once."""
        start = bisect_left(self._places, blake3_64(key.encode()))
        seen: set[str] = set()
        for number in range(len(self._urls)):
            url = self._urls[(start + number) % len(self._urls)]
            if url not in seen:
                seen.add(url)
                yield url


class Rings:
    """The ring of each model, made anew only when its workers change (not when they go up or down)."""

    def __init__(self) -> None:
        self._rings: dict[str, tuple[frozenset[str], HashRing]] = {}

    def of(self, model: str, workers: Sequence[WorkerRecord]) -> HashRing:
        urls = frozenset(worker.url for worker in workers)
        found = self._rings.get(model)
        if found is None or found[0] != urls:
            found = self._rings[model] = (urls, HashRing(sorted(urls)))
        return found[1]
