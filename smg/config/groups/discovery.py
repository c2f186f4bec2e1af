"""Engines that Kubernetes runs: which pods are engines, and what their annotations say."""

from typing import Annotated

from smg.config.option import Group, option


class DiscoverySettings(Group, frozen=True):
    """Engines found as pods of a Kubernetes cluster; see docs/kubernetes.md."""

    service_discovery: Annotated[
        bool, option("--service-discovery", "Take the pods that match a selector as engines, for as long as they do.")
    ] = False
    selector: Annotated[
        tuple[str, ...], option("--selector", "Labels of pods with engines, as key=value; a pod must have all of them.")
    ] = ()
    prefill_selector: Annotated[
        tuple[str, ...], option("--prefill-selector", "Labels of pods with prefill engines, as for --selector.")
    ] = ()
    decode_selector: Annotated[
        tuple[str, ...], option("--decode-selector", "Labels of pods with decode engines, as for --selector.")
    ] = ()
    encode_selector: Annotated[
        tuple[str, ...], option("--encode-selector", "Labels of pods with encode engines, as for --selector.")
    ] = ()
    service_discovery_port: Annotated[
        int,
        option(
            "--service-discovery-port",
            "Port of the engine in a pod without the annotation smg.ai/worker-ports.",
            ge=1,
            le=65535,
        ),
    ] = 80
    service_discovery_namespace: Annotated[
        str | None, option("--service-discovery-namespace", "Namespace of the pods; all namespaces when not given.")
    ] = None
    model_id_from: Annotated[
        str | None,
        option(
            "--model-id-from",
            "What names the model of a pod: namespace, label:KEY or annotation:KEY; the engine when not given.",
        ),
    ] = None
    kv_connector_annotation: Annotated[
        str, option("--kv-connector-annotation", "Annotation with the KV connector of a vLLM engine.")
    ] = "smg.ai/kv-connector"
    kv_engine_id_annotation: Annotated[
        str, option("--kv-engine-id-annotation", "Annotation with the KV engine id of a vLLM engine.")
    ] = "smg.ai/kv-engine-id"
