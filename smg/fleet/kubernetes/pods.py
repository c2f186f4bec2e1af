"""What a pod means for the fleet: no engine, one that is held back, or one or more workers (spec api-and-ops 7.1)."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from smg.config import discovery
from smg.config.settings import Settings
from smg.fleet.records import Role
from smg.fleet.roles import BOOTSTRAP_PORT, ROLE
from smg.fleet.sources import WorkerSpec, check

PORTS = "smg.ai/worker-ports"
BOOTSTRAP = "sglang.ai/bootstrap-port"
POD_NAME = "smg.ai/pod-name"
POD_UID = "smg.ai/pod-uid"
NOT_READY = "its pod is not ready"

# Why a pod is no engine, as metrics and logs name it.
Absence: TypeAlias = Literal["unselected", "terminating", "finished", "no_address", "invalid"]

_SEPARATORS = re.compile(r"[,\s]+")


class Metadata(msgspec.Struct, rename="camel"):
    """The part of a Kubernetes object's metadata that matters here."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    @property
    def key(self) -> str:
        """What names the pod in the cluster."""
        return f"{self.namespace}/{self.name}"


class Condition(msgspec.Struct):
    """One condition of a pod; ``status`` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""


class Status(msgspec.Struct):
    """How a pod is."""

    phase: str = ""
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[Condition] | None = None


class Pod(msgspec.Struct):
    """A pod as the API gives it, without what does not matter here."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())


class Rules:
    """Which pods are engines, and what is known of those. The settings have been checked before."""

    def __init__(self, settings: Settings) -> None:
        given = settings.discovery
        selectors: tuple[tuple[Role, Mapping[str, str]], ...] = (
            ("encode", discovery.selector(given.encode_selector)),
            ("prefill", discovery.selector(given.prefill_selector)),
            ("decode", discovery.selector(given.decode_selector)),
            ("regular", discovery.selector(given.selector)),
        )
        self._selectors = [(role, labels) for role, labels in selectors if labels]
        self._port = given.service_discovery_port
        self._model = discovery.model_name(given.model_id_from) if given.model_id_from is not None else None
        self._runtime = settings.fleet.backend or ""
        # A key for a URL is for an engine that flags name.
        self._api_key = next((key for key in settings.fleet.worker_api_key if "://" not in key), "")
        self._connector = given.kv_connector_annotation
        self._engine_id = given.kv_engine_id_annotation

    @property
    def common(self) -> dict[str, str]:
        """The labels that all pods with engines have: what the API may leave others out by."""
        first, *others = [labels for _, labels in self._selectors]
        return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}

    def absence(self, pod: Pod) -> Absence | None:
        """Why ``pod`` is no engine, None if it is one. What is not ready still is: it is ``held``."""
        if self._role(pod) is None:
            return "unselected"
        if pod.metadata.deletion_timestamp is not None:
            return "terminating"
        if pod.status.phase in ("Succeeded", "Failed"):
            return "finished"
        return None if pod.status.pod_ip else "no_address"

    def specs(self, pod: Pod) -> list[WorkerSpec]:
        """The workers of a pod that is an engine, one for each of its ports.

        Raises:
            ValueError: an annotation that cannot be; the message names it.
        """
        annotations = pod.metadata.annotations or {}
        ports = _ports(PORTS, annotations.get(PORTS, "")) or [self._port]
        bootstraps = _ports(BOOTSTRAP, annotations.get(BOOTSTRAP, ""))
        if len(bootstraps) not in (0, 1, len(ports)):
            raise ValueError(f"{BOOTSTRAP}: one port, or one for each of {len(ports)} engines is expected")
        address = pod.status.pod_ip or ""
        host = f"[{address}]" if ":" in address else address
        labels = self._labels(pod, annotations)
        specs = []
        for number, port in enumerate(ports):
            own = dict(labels)
            if bootstraps:
                own[BOOTSTRAP_PORT] = str(bootstraps[number if len(bootstraps) > 1 else 0])
            spec = WorkerSpec(
                url=f"{host}:{port}",
                runtime=self._runtime,
                labels=own,
                api_key=self._api_key,
                held="" if pod.ready else NOT_READY,
            )
            check(spec)
            specs.append(spec)
        return specs

    def _role(self, pod: Pod) -> Role | None:
        labels = pod.metadata.labels or {}
        fitting = (role for role, wanted in self._selectors if wanted.items() <= labels.items())
        return next(fitting, None)

    def _labels(self, pod: Pod, annotations: Mapping[str, str]) -> dict[str, str]:
        """Labels of the pod's workers; the role of a regular one is for the engine to tell."""
        role = self._role(pod)
        found: dict[str, Any] = {
            POD_NAME: pod.metadata.key,
            POD_UID: pod.metadata.uid,
            ROLE: role if role != "regular" else "",
            "served_model_name": self._model_name(pod, annotations),
            "kv_connector": annotations.get(self._connector, ""),
            "kv_engine_id": annotations.get(self._engine_id, ""),
        }
        return {name: value for name, value in found.items() if value}

    def _model_name(self, pod: Pod, annotations: Mapping[str, str]) -> str:
        if self._model is None:
            return ""
        if self._model.place == "namespace":
            return pod.metadata.namespace
        return (annotations if self._model.place == "annotation" else pod.metadata.labels or {}).get(
            self._model.key, ""
        )


def _ports(name: str, text: str) -> list[int]:
    words = [word for word in _SEPARATORS.split(text) if word]
    if any(not (word.isascii() and word.isdecimal() and 1 <= int(word) <= 65535) for word in words):
        raise ValueError(f"{name}: {text!r} is no list of ports")
    ports = [int(word) for word in words]
    if len(set(ports)) != len(ports):
        raise ValueError(f"{name}: {text!r} names a port twice")
    return ports
