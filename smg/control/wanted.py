"""Wanted: which workers the sources ask for, by URL, and what is otherwise with the next word of one of them."""

from collections.abc import Iterable, Sequence

from smg.fleet.sources import WorkerSpec


class Wanted:
    """The last word of each source; ``names`` are theirs. Where several ask for one URL, the first decides."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._said: list[dict[str, WorkerSpec] | None] = [None for _ in names]

    @property
    def silent(self) -> set[str]:
        """Names of sources that have not said anything yet."""
        return {name for name, said in zip(self._names, self._said, strict=True) if said is None}

    @property
    def urls(self) -> list[str]:
        """All URLs that are asked for, in the order of the sources."""
        return list(dict.fromkeys(url for said in self._said if said is not None for url in said))

    def say(self, number: int, specs: Iterable[WorkerSpec]) -> list[str]:
        """Take the whole list of source ``number``; returns the URLs of which it says something else than before:
        those it asks for in their order, then those it asks for no more."""
        before, now = self._said[number] or {}, dict[str, WorkerSpec]()
        for spec in specs:
            now.setdefault(spec.url, spec)
        self._said[number] = now
        # Most are the same object as before, which is quicker to see than that they are equal.
        new = [url for url, spec in now.items() if (old := before.get(url)) is not spec and old != spec]
        return new + [url for url in before if url not in now]

    def at(self, url: str) -> tuple[WorkerSpec, str] | None:
        """What is asked for at ``url``, and the name of the source; None if nobody asks for it."""
        for name, said in zip(self._names, self._said, strict=True):
            if said is not None and (spec := said.get(url)) is not None:
                return spec, name
        return None

    def counts(self) -> dict[str, int]:
        """How many workers the sources of each name ask for."""
        counts = dict.fromkeys(self._names, 0)
        for name, said in zip(self._names, self._said, strict=True):
            counts[name] += len(said or ())
        return counts
