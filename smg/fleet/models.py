"""Which models the workers make, derived from what the engines told (spec routing 4.2)."""

from collections.abc import Callable, Mapping, Sequence

from smg.engines.base import EngineInfo
from smg.fleet.records import WILDCARD, ModelRecord, WorkerRecord
from smg.fleet.steps import WORKERS, Steps, at_once


def aliases(info: EngineInfo) -> list[str]:
    """Names besides its id that a model answers to: the path it was loaded from when that is a hub name
    (``org/name``), or the last part of an id that is a local path."""
    if info.model_id.startswith("/"):
        return [name] if (name := info.model_id.rstrip("/").rpartition("/")[2]) else []
    if info.model_path and info.model_path != info.model_id and not info.model_path.startswith(("/", ".", "~")):
        return [info.model_path]
    return []


def derive(
    workers: Sequence[WorkerRecord],
    infos: Mapping[str, EngineInfo],
    previous: Mapping[str, ModelRecord],
    created: Callable[[], int],
) -> list[ModelRecord]:
    """As ``deriving``, at once."""
    return at_once(deriving(workers, infos, previous, created))


def deriving(
    workers: Sequence[WorkerRecord],
    infos: Mapping[str, EngineInfo],
    previous: Mapping[str, ModelRecord],
    created: Callable[[], int],
) -> Steps[list[ModelRecord]]:
    """Build the model records of ``workers``, in the order the workers joined; those that only prepare answers last.

    ``infos`` maps worker ids to what their engines told; a model whose workers have not told yet keeps its
    ``previous`` record (control has just restarted). Where engines of a pair differ, the one that decodes decides.
    Tokenizer fields always come from ``previous``. An alias never shadows a model; the first to declare it has it, and
    it passes on when that one leaves.
    """
    told: dict[str, list[EngineInfo]] = {}
    for count, worker in enumerate(sorted(workers, key=lambda worker: worker.role in ("prefill", "encode"))):
        if count % WORKERS == 0:
            yield
        info = infos.get(worker.id)
        for name in worker.models:
            found = told.setdefault(name, [])
            # Thousands of engines of one model mostly tell the same.
            if info is not None and (not found or found[-1] != info):
                found.append(info)

    configured: dict[str, list[str]] = {}
    for count, worker in enumerate(workers):
        if count % WORKERS == 0:
            yield
        for card in worker.wanted.models:
            configured.setdefault(card.id, []).extend(card.aliases)

    taken = set(told) | {WILDCARD}
    models = []
    for name, facts in told.items():
        record = _record(name, facts, previous.get(name), created)
        yield
        wanted = list(configured.get(name, ())) + ([] if facts else record.aliases)
        for count, info in enumerate(facts, 1):
            wanted += aliases(info)
            if count % WORKERS == 0:
                yield
        record.aliases = [alias for alias in dict.fromkeys(wanted) if alias not in taken]
        taken.update(record.aliases)
        models.append(record)
    return models


def _record(
    name: str, facts: Sequence[EngineInfo], previous: ModelRecord | None, created: Callable[[], int]
) -> ModelRecord:
    """One model's record. Where workers differ, the smallest context fits all of them and the first speaks."""
    old = previous if previous is not None else ModelRecord(id=name, created=created())
    record = ModelRecord(
        id=name,
        aliases=list(old.aliases),
        tokenizer_dir=old.tokenizer_dir,
        tokenizer_key=old.tokenizer_key,
        tokenizer_error=old.tokenizer_error,
        chat_template=old.chat_template,
        context_length=old.context_length,
        max_input_length=old.max_input_length,
        vocab_size=old.vocab_size,
        generates=old.generates,
        eos_ids=list(old.eos_ids),
        default_sampling=dict(old.default_sampling),
        created=old.created,
        policy=old.policy,
    )
    if facts:
        record.context_length = min((info.context_length for info in facts if info.context_length), default=0)
        record.max_input_length = min((info.max_input_length for info in facts if info.max_input_length), default=0)
        record.vocab_size = next((info.vocab_size for info in facts if info.vocab_size), 0)
        record.generates = any(info.is_generation for info in facts)
        record.eos_ids = list(next((info.eos_ids for info in facts if info.eos_ids), ()))
        record.default_sampling = dict(next((info.default_sampling for info in facts if info.default_sampling), {}))
    return record
