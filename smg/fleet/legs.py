"""The engines of a disaggregated fleet that flags name, as workers with a role (spec api-and-ops 3.1)."""

from collections.abc import AsyncIterator, Sequence

from smg.config import legs
from smg.config.settings import DisaggregationSettings
from smg.engines.finding import scheme_of
from smg.fleet.records import Role
from smg.fleet.roles import BOOTSTRAP_PORT, ROLE
from smg.fleet.sources import WorkerSpec


class LegSource:
    """The workers of ``--prefill``, ``--decode`` and ``--encode``, for the life of the process.

    Raises:
        ValueError: one of them is no engine address.
    """

    name = "flags"

    def __init__(self, settings: DisaggregationSettings, runtime: str | None = None) -> None:
        self.specs = [
            *_specs("prefill", settings.prefill, runtime or ""),
            *_specs("decode", settings.decode, runtime or ""),
            *_specs("encode", settings.encode, runtime or ""),
        ]

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        yield self.specs


def _specs(role: Role, values: Sequence[str], runtime: str) -> list[WorkerSpec]:
    specs = []
    for url, port in legs.parse(values):
        scheme_of(url)
        labels: dict[str, str] = {ROLE: role}
        if port is not None:
            labels[BOOTSTRAP_PORT] = str(port)
        specs.append(WorkerSpec(url=url, runtime=runtime, labels=labels))
    return specs
