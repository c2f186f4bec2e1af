"""What a pod means for the fleet (spec api-and-ops 7.1; field case RL-07)."""

import json

import msgspec
import pytest

from smg.config.settings import DiscoverySettings, FleetSettings, Settings
from smg.fleet.kubernetes.pods import BOOTSTRAP, NOT_READY, PORTS, Pod, Rules
from tests.kubernetes_api import pod


def rules(fleet=None, **discovery):
    given = {"service_discovery": True, "selector": ("app=vllm",)} | discovery
    return Rules(Settings(fleet=FleetSettings(**fleet or {}), discovery=DiscoverySettings(**given)))


def seen(*arguments, **fields):
    """The pod as the API sends it."""
    return msgspec.json.decode(json.dumps(pod(*arguments, **fields)), type=Pod)


def annotated(**annotations):
    return seen("a", "10.0.0.1", annotations=annotations)


class TestMembership:
    def test_a_pod_that_matches_is_an_engine(self):
        found = seen("a", "10.0.0.1")
        assert rules().absence(found) is None
        (spec,) = rules().specs(found)
        assert (spec.url, spec.held) == ("10.0.0.1:80", "")
        assert spec.labels == {"smg.ai/pod-name": "default/a", "smg.ai/pod-uid": "uid-a"}

    def test_one_that_is_not_ready_is_held_back(self):
        assert rules().absence(seen("a", "10.0.0.1", ready=False)) is None
        assert rules().specs(seen("a", "10.0.0.1", ready=False))[0].held == NOT_READY

    def test_a_pod_without_conditions_is_not_ready(self):
        found = seen("a", "10.0.0.1")
        found.status.conditions = None
        assert rules().specs(found)[0].held == NOT_READY

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"labels": {"app": "other"}}, "unselected"),
            ({"labels": None}, "unselected"),
            ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "terminating"),
            ({"phase": "Succeeded"}, "finished"),
            ({"phase": "Failed"}, "finished"),
        ],
    )
    def test_why_others_are_none(self, fields, why):
        assert rules().absence(seen("a", "10.0.0.1", **fields)) == why

    def test_a_pod_without_an_address_is_none_yet(self):
        assert rules().absence(seen("a", phase="Pending")) == "no_address"

    def test_all_labels_of_a_selector_must_match(self):
        both = rules(selector=("app=vllm", "tier=gpu"))
        assert both.absence(seen("a", "10.0.0.1")) == "unselected"
        assert both.absence(seen("a", "10.0.0.1", labels={"app": "vllm", "tier": "gpu", "more": ""})) is None


class TestWhatAWorkerIs:
    def test_IPv6_addresses_are_bracketed(self):
        assert rules(service_discovery_port=50051).specs(seen("a", "fd00::7"))[0].url == "[fd00::7]:50051"

    def test_a_worker_for_each_port_of_the_annotation(self):
        found = rules().specs(annotated(**{PORTS: "8000, 8001"}))
        assert [spec.url for spec in found] == ["10.0.0.1:8000", "10.0.0.1:8001"]

    @pytest.mark.parametrize(("text", "ports"), [("8998", ["8998", "8998"]), ("8998,8999", ["8998", "8999"])])
    def test_bootstrap_ports_are_for_all_or_one_for_each(self, text, ports):
        found = rules().specs(annotated(**{PORTS: "8000,8001", BOOTSTRAP: text}))
        assert [spec.labels["bootstrap_port"] for spec in found] == ports

    @pytest.mark.parametrize("annotations", [{PORTS: "http"}, {PORTS: "0"}, {PORTS: "80,80"}, {BOOTSTRAP: "1,2"}])
    def test_annotations_that_cannot_be_are_named(self, annotations):
        with pytest.raises(ValueError, match=next(iter(annotations))):
            rules().specs(annotated(**annotations))

    def test_runtime_and_key_are_those_of_all_engines(self):
        fleet = {"backend": "sglang", "worker_api_key": ("http://a:1=one", "rest")}
        (spec,) = rules(fleet).specs(seen("a", "10.0.0.1"))
        assert (spec.runtime, spec.api_key) == ("sglang", "rest")

    @pytest.mark.parametrize(
        ("place", "name"), [("namespace", "default"), ("label:app", "vllm"), ("annotation:ai/model", "qwen")]
    )
    def test_the_model_s_name(self, place, name):
        (spec,) = rules(model_id_from=place).specs(annotated(**{"ai/model": "qwen"}))
        assert spec.labels["served_model_name"] == name

    def test_no_name_where_there_is_none(self):
        (spec,) = rules(model_id_from="label:model").specs(seen("a", "10.0.0.1"))
        assert "served_model_name" not in spec.labels

    def test_kv_connector_and_engine_id(self):
        (spec,) = rules().specs(annotated(**{"smg.ai/kv-connector": "NixlConnector", "smg.ai/kv-engine-id": "e1"}))
        assert (spec.labels["kv_connector"], spec.labels["kv_engine_id"]) == ("NixlConnector", "e1")
        (spec,) = rules(kv_connector_annotation="x").specs(annotated(x="MooncakeConnector"))
        assert spec.labels["kv_connector"] == "MooncakeConnector"


class TestRoles:
    def roles(self):
        selectors = {
            "selector": (),
            "prefill_selector": ("app=vllm", "role=p"),
            "decode_selector": ("app=vllm", "role=d"),
            "encode_selector": ("app=vllm", "role=e"),
        }
        return rules(**selectors)

    @pytest.mark.parametrize(("label", "role"), [("p", "prefill"), ("d", "decode"), ("e", "encode")])
    def test_the_selector_that_matches_says_what_the_engine_does(self, label, role):
        (spec,) = self.roles().specs(seen("a", "10.0.0.1", labels={"app": "vllm", "role": label}))
        assert spec.labels["worker_type"] == role

    def test_pods_of_none_of_them_are_no_engines(self):
        assert self.roles().absence(seen("a", "10.0.0.1")) == "unselected"

    def test_the_API_is_asked_for_what_all_have(self):
        assert self.roles().common == {"app": "vllm"}
        assert rules(decode_selector=("role=d",)).common == {}
