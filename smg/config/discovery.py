"""Label selectors and names of models as the discovery flags give them (spec api-and-ops 7.1)."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from smg.config.groups.discovery import DiscoverySettings

# Kubernetes' own rules for labels: a name of 63 characters at most with an optional DNS prefix, and a value like it.
_NAME = r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9.-]{{1,253}}/)?{_NAME}", re.ASCII)
_VALUE = re.compile(rf"(?:{_NAME})?", re.ASCII)

Place: TypeAlias = Literal["namespace", "label", "annotation"]


class ModelName(NamedTuple):
    """Where a pod's model is named; ``key`` is empty for its namespace."""

    place: Place
    key: str


def selector(values: Sequence[str]) -> dict[str, str]:
    """Read ``key=value`` pairs.

    Raises:
        ValueError: one is no such pair, or a key has two values.
    """
    found: dict[str, str] = {}
    for text in values:
        key, mark, value = text.partition("=")
        if not mark or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ValueError(f"{text!r} is not a label of a pod, as key=value")
        if found.setdefault(key, value) != value:
            raise ValueError(f"no pod can have two values of the label {key!r}")
    return found


def model_name(text: str) -> ModelName:
    """Read ``namespace``, ``label:KEY`` or ``annotation:KEY``. Raises ValueError for anything else."""
    place, _, key = text.partition(":")
    if place == "namespace" and text == place:
        return ModelName("namespace", "")
    if place in ("label", "annotation") and _KEY.fullmatch(key):
        return ModelName("label" if place == "label" else "annotation", key)
    raise ValueError(f"{text!r} is none of namespace, label:KEY and annotation:KEY")


def check(settings: DiscoverySettings) -> list[str]:
    """What is wrong with the discovery of pods; a line each."""
    given = {
        "--selector": settings.selector,
        "--prefill-selector": settings.prefill_selector,
        "--decode-selector": settings.decode_selector,
        "--encode-selector": settings.encode_selector,
    }
    problems = []
    for flag, values in given.items():
        try:
            selector(values)
        except ValueError as error:
            problems.append(f"{flag}: {error}")
        if values and not settings.service_discovery:
            problems.append(f"{flag}: only has a meaning with --service-discovery")
    if settings.service_discovery and not any(given.values()):
        problems.append("--service-discovery: a selector must say which pods are engines")
    if settings.model_id_from is not None:
        try:
            model_name(settings.model_id_from)
        except ValueError as error:
            problems.append(f"--model-id-from: {error}")
    for flag, key in (
        ("--kv-connector-annotation", settings.kv_connector_annotation),
        ("--kv-engine-id-annotation", settings.kv_engine_id_annotation),
    ):
        if not _KEY.fullmatch(key):
            problems.append(f"{flag}: {key!r} is not the name of an annotation")
    return problems
