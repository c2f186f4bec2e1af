"""Where workers come from. Flags today; any discovery (Kubernetes, a file, the admin API) yields the same specs."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from smg.engines.finding import scheme_of
from smg.engines.http.address import split_rank
from smg.engines.table import adapter


class WorkerSpec(msgspec.Struct, frozen=True):
    """One wanted worker. ``runtime`` empty: its contract is probed. ``labels`` win over what the engine tells.

    ``api_key`` is for HTTP engines.
    """

    url: str
    runtime: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int = 50
    cost: float = 1.0
    api_key: str = ""


class WorkerSource(Protocol):
    """A place that knows which workers there should be."""

    def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        """Yield this source's whole list, again after every change; an ended iterator means: it stays as it is."""
        ...


class StaticSource:
    """The workers given by flags, for the life of the process.

    Raises:
        ValueError: one of ``urls`` is no engine address, ``runtime`` no known contract, or a key is for none of them.
    """

    def __init__(self, urls: Sequence[str], runtime: str | None = None, keys: Sequence[str] = ()) -> None:
        if runtime:
            adapter(runtime)
        for url in urls:
            scheme_of(url)
        by_url = _keys(keys, urls)
        self._specs = [
            WorkerSpec(url=url, runtime=runtime or "", api_key=by_url.get(split_rank(url)[0], by_url.get("", "")))
            for url in dict.fromkeys(urls)
        ]

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        yield self._specs


def _keys(keys: Sequence[str], urls: Sequence[str]) -> dict[str, str]:
    """Keys by the URL they are for, under "" the one for all others: ``KEY`` or ``URL=KEY``."""
    known = {split_rank(url)[0] for url in urls}
    found: dict[str, str] = {}
    for text in keys:
        url = next((url for url in known if text.startswith(f"{url}=")), "")
        if not url and "://" in text:
            raise ValueError("a worker API key is for a URL that no worker has")
        found[url] = text.removeprefix(f"{url}=") if url else text
    return found
