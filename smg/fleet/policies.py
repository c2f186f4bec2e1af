"""Which routing policy a model's workers ask for by their label ``policy`` (spec routing 7)."""

import logging
from collections.abc import Iterable, Sequence

from smg.fleet.records import ModelRecord, WorkerRecord
from smg.fleet.steps import WORKERS, Steps

log = logging.getLogger("smg.fleet")

LABEL = "policy"


def asking(model: ModelRecord, workers: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Those of ``workers``, in their order, that serve ``model`` and name a policy; the first one decides."""
    names = {model.id, *model.aliases}
    return [worker for worker in workers if worker.labels.get(LABEL) and not names.isdisjoint(worker.models)]


def policy_of(model: ModelRecord, workers: Iterable[WorkerRecord]) -> str:
    """The policy of ``model`` as an admin or its workers put it, with its parameters; "" for the default."""
    return model.policy or next((worker.labels[LABEL] for worker in asking(model, workers)), "")


def policies_over(worker: WorkerRecord, models: Iterable[ModelRecord], workers: Sequence[WorkerRecord]) -> list[str]:
    """The policies by which requests come to ``worker``: one for each of ``models`` that it serves, else its own."""
    served = [model for model in models if not {model.id, *model.aliases}.isdisjoint(worker.models)]
    return [policy_of(model, workers) for model in served] or [worker.labels.get(LABEL, "")]


class Conflicts:
    """Warns once of each model whose workers do not agree."""

    def __init__(self) -> None:
        self._told: dict[str, list[tuple[str, str]]] = {}

    def look(self, models: Sequence[ModelRecord], workers: Iterable[WorkerRecord]) -> Steps[None]:
        """Warn of what is new since the last look."""
        served: dict[str, list[str]] = {}
        for model in models:
            for name in {model.id, *model.aliases}:
                served.setdefault(name, []).append(model.id)
        asked: dict[str, list[tuple[str, str]]] = {model.id: [] for model in models}
        for count, worker in enumerate(workers):
            if count % WORKERS == 0:
                yield
            if policy := worker.labels.get(LABEL):
                for id in {id for name in worker.models for id in served.get(name, ())}:
                    asked[id].append((policy, worker.url))
        told = {}
        for model in models:
            by = asked[model.id]
            if len({policy for policy, _ in by}) < 2:
                continue
            told[model.id] = by
            if self._told.get(model.id) != by:
                self._warn(model, by)
                yield
        self._told = told

    def _warn(self, model: ModelRecord, asked: list[tuple[str, str]]) -> None:
        first, by = asked[0]
        others = sorted({policy for policy, _ in asked} - {first})
        facts = {"model": model.id, "policy": model.policy or first, "ignored": others}
        if model.policy:
            log.warning("workers of one model name different policies; what was set for the model wins", extra=facts)
        else:
            log.warning(
                "workers of one model name different policies; the first worker's wins", extra={**facts, "worker": by}
            )
