"""What part of a generation an engine takes, and who fits whom (spec routing 5, engine-contract 2.8, 3.2 and 5).

Everything is read from labels, so it does not matter whether a flag, a file, an API call or the engine itself said it.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from smg.fleet.records import Role, WorkerRecord

ROLE = "worker_type"
BOOTSTRAP_HOST = "bootstrap_host"
BOOTSTRAP_PORT = "bootstrap_port"
# Engines of both kinds are only paired within one affinity, if they have one: a rack, a fast network.
AFFINITY = "affinity"

DEFAULT_BOOTSTRAP_PORT = 8998

_ROLES: Mapping[str, Role] = {"regular": "regular", "prefill": "prefill", "decode": "decode", "encode": "encode"}
_KV_ROLES: Mapping[str, Role] = {"kv_producer": "prefill", "kv_consumer": "decode"}
# What makes the cache of one engine useless to another where it differs.
_FACTS = (
    *("kv_connector", "kv_cache_dtype", "block_size", "attention_backend", "model_dtype", "pairing_protocol"),
    *("weight_version", AFFINITY),
)


def role_of(labels: Mapping[str, str]) -> Role:
    """The role that ``worker_type`` gives, else the one the engine was started for; ``regular`` when neither tells.

    vLLM's ``kv_both`` tells nothing: such engines can be either.
    """
    for label, names in ((ROLE, _ROLES), ("disaggregation_mode", _ROLES), ("kv_role", _KV_ROLES)):
        found = names.get(labels.get(label, "").casefold())
        if found is not None:
            return found
    return "regular"


def meeting_point(worker: WorkerRecord) -> tuple[str, int]:
    """Host and port where other engines find this one to transfer from it (spec engine-contract 5.1)."""
    host = worker.labels.get(BOOTSTRAP_HOST) or urlsplit(worker.url).hostname or ""
    for label in (BOOTSTRAP_PORT, "disaggregation_bootstrap_port"):
        port = worker.labels.get(label, "")
        if port.isdecimal() and 1 <= int(port) <= 65535:
            return host, int(port)
    return host, DEFAULT_BOOTSTRAP_PORT


def facts(worker: WorkerRecord) -> tuple[str, ...]:
    """What ``fits`` compares; the contract first, empty where the engine has not told."""
    return (worker.runtime, worker.kind, *(worker.labels.get(name, "") for name in _FACTS))


def fits(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether engines with these facts can be a pair: one contract, and nothing known that differs."""
    known = ((mine, theirs) for mine, theirs in zip(one, other, strict=True) if mine and theirs)
    return one[0] == other[0] and all(mine == theirs for mine, theirs in known)


def served(workers: Iterable[WorkerRecord]) -> frozenset[str]:
    """Models that ``workers`` can answer for by themselves: a regular one, or one of each kind of a pair."""
    models: dict[Role, set[str]] = {"regular": set(), "prefill": set(), "decode": set(), "encode": set()}
    for worker in workers:
        models[worker.role].update(worker.models)
    return frozenset(models["regular"] | (models["prefill"] & models["decode"]))
