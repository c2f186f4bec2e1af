"""KubernetesSource: follows the pods of a cluster, and is never without its last knowledge (field case RL-07).

It lists all pods once and then watches what changes from there on. A watch that ends is taken up where it was; when the
API has forgotten where that is (410), everything is listed anew. While the API is away, what is known stays.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterable, Sequence

from smg.core import clock
from smg.fleet.kubernetes.api import ApiError, Change, ExpiredError, PodsApi
from smg.fleet.kubernetes.pods import Pod, Rules
from smg.fleet.sources import WorkerSpec
from smg.telemetry.families import Gauge

log = logging.getLogger("smg.fleet")

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0
_JITTER = 0.2
# A watch that lasted so long was a good one, and the next one may begin at once; after others there is a short rest.
_GOOD_SECS = 5.0
_LONGEST_REST = 0.5
# After so many failures in a row pods are listed anew: perhaps it is the version that the API does not like.
_STALE_AFTER = 5


class KubernetesSource:
    """The workers in the pods that ``rules`` choose among those of ``api``.

    ``connected`` is 1 while pods are followed, and 0 while the API is away.
    """

    name = "kubernetes"

    def __init__(self, rules: Rules, api: PodsApi, connected: Gauge) -> None:
        self._rules = rules
        self._api = api
        self._connected = connected
        self._specs: dict[str, list[WorkerSpec]] = {}  # by pod, of those that are engines
        self._why: dict[str, str] = {}  # by URL, of workers that have just left
        self._invalid: dict[str, str] = {}  # by pod
        self._away: str | None = None
        self._failures = 0
        self._pause = 0.0

    def departure(self, url: str) -> str:
        return self._why.get(url, "deleted")

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        version = ""
        try:
            while True:
                began = clock.monotonic()
                try:
                    if not version:
                        pods, version = await self._api.list_all()
                        self._take_all(pods)
                        yield self._list()
                    async for changes in self._api.watch(version):
                        self._is_back()
                        version = changes[-1].version if changes else version
                        if self._take(changes):
                            yield self._list()
                    pause = self._rest(_LONGEST_REST) if clock.monotonic() - began < _GOOD_SECS else 0.0
                except ExpiredError as error:
                    log.info("pods are listed anew", extra={"reason": str(error)})
                    version, pause = "", self._rest(_LONGEST_PAUSE)
                except ApiError as error:
                    await self._is_away(error)
                    version = version if self._failures < _STALE_AFTER else ""
                    pause = self._rest(_LONGEST_PAUSE)
                await asyncio.sleep(pause)
        finally:
            await self._api.close()

    def _rest(self, longest: float) -> float:
        """Seconds to wait, more each time until the API is well again, and ``longest`` at most."""
        self._pause = min(2 * self._pause or _FIRST_PAUSE, longest)
        return self._pause * random.uniform(1 - _JITTER, 1 + _JITTER)

    async def _is_away(self, error: ApiError) -> None:
        await self._api.close()
        self._failures += 1
        self._connected.set(self.name, v=0)
        if self._away != str(error):
            self._away = str(error)
            facts = {"error": self._away, "workers": sum(map(len, self._specs.values()))}
            log.error("the Kubernetes API cannot be followed; known workers stay", extra=facts)

    def _is_back(self) -> None:
        self._connected.set(self.name, v=1)
        if self._away is not None:
            self._away, self._failures, self._pause = None, 0, 0.0
            log.info("the Kubernetes API is followed again")

    # -- what pods there are

    def _list(self) -> list[WorkerSpec]:
        """All workers. Of two pods with one address, which host networks allow, the ready one counts."""
        found: dict[str, WorkerSpec] = {}
        for spec in (spec for specs in self._specs.values() for spec in specs):
            other = found.get(spec.url)
            if other is None or (other.held and not spec.held):
                found[spec.url] = spec
        return list(found.values())

    def _take_all(self, pods: Iterable[Pod]) -> None:
        """These are all pods there are."""
        self._why = {}
        listed = {pod.metadata.key: pod for pod in pods}
        for key in self._specs.keys() - listed.keys():
            self._change(key, [], "deleted")
        for key, pod in listed.items():
            self._judge(key, pod)

    def _take(self, changes: Sequence[Change]) -> bool:
        """Take over what a watch tells; returns whether it makes a difference."""
        self._why = {}
        different = False
        for change in changes:
            if change.pod is None:
                continue
            key = change.pod.metadata.key
            if change.deleted:
                # The API also calls it deleted when its labels no longer match; a pod that goes was told to before.
                gone = change.pod.metadata.deletion_timestamp is not None
                different |= self._change(key, [], "deleted" if gone else "unselected")
                self._invalid.pop(key, None)
            else:
                different |= self._judge(key, change.pod)
        return different

    def _judge(self, key: str, pod: Pod) -> bool:
        why = self._rules.absence(pod)
        if why is not None:
            return self._change(key, [], why)
        try:
            specs = self._rules.specs(pod)
        except ValueError as error:
            if self._invalid.get(key) != str(error):
                self._invalid[key] = str(error)
                log.error("a pod cannot be a worker", extra={"pod": key, "error": str(error)})
            return self._change(key, [], "invalid")
        self._invalid.pop(key, None)
        return self._change(key, specs, "address_changed")

    def _change(self, key: str, specs: list[WorkerSpec], why: str) -> bool:
        """Have ``specs`` as the pod's workers; ``why`` is for those that it has no longer."""
        before = self._specs.pop(key, [])
        if specs:
            self._specs[key] = specs
        for url in {spec.url for spec in before} - {spec.url for spec in specs}:
            self._why[url] = why
        return before != specs
