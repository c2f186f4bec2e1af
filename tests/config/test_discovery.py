"""Flags of the discovery of pods (spec api-and-ops 3.2, 3.5)."""

import pytest

from smg.config import SettingsError, load
from smg.config.discovery import model_name, selector


def test_all_flags():
    given = (
        "--service-discovery --selector app=vllm tier=gpu --service-discovery-port 50051 --model-id-from label:model"
    )
    found = load([*given.split(), "--service-discovery-namespace", "llm"], {}).discovery
    assert (found.selector, found.service_discovery_port) == (("app=vllm", "tier=gpu"), 50051)
    assert (found.service_discovery_namespace, found.model_id_from) == ("llm", "label:model")


def test_selectors_from_the_environment():
    found = load([], {"SMG_SERVICE_DISCOVERY": "true", "SMG_SELECTOR": "app=vllm,tier=gpu"}).discovery
    assert selector(found.selector) == {"app": "vllm", "tier": "gpu"}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("--service-discovery", "a selector must say which pods are engines"),
        ("--selector app=vllm", "only has a meaning with --service-discovery"),
        ("--service-discovery --selector app", "'app' is not a label of a pod"),
        ("--service-discovery --selector app!=x", "'app!=x' is not a label of a pod"),
        ("--service-discovery --selector a=1 a=2", "two values of the label 'a'"),
        ("--service-discovery --selector a=1 --model-id-from name", "'name' is none of namespace"),
        ("--service-discovery --selector a=1 --service-discovery-port 0", "at least 1"),
        ("--service-discovery --selector a=1 --kv-connector-annotation -", "'-' is not the name of an annotation"),
    ],
)
def test_what_makes_no_sense_is_refused(flags, problem):
    with pytest.raises(SettingsError) as caught:
        load(flags.split(), {})
    assert any(problem in line for line in caught.value.problems)


def test_pods_make_a_disaggregated_fleet_whole():
    pods = "--pd-disaggregation --service-discovery --prefill-selector role=p --decode-selector role=d"
    assert load(pods.split(), {}).discovery.prefill_selector == ("role=p",)
    with pytest.raises(SettingsError) as caught:
        load(["--pd-disaggregation", "--service-discovery", "--prefill-selector", "role=p"], {})
    assert caught.value.problems == ["--decode: no such engine is given"]


@pytest.mark.parametrize("text", ["namespace", "label:smg.ai/model", "annotation:model"])
def test_places_of_a_model_s_name(text):
    assert ":".join(filter(None, model_name(text))) == text


@pytest.mark.parametrize("text", ["", "label", "label:", "namespace:x", "annotation:a b"])
def test_no_places_of_a_model_s_name(text):
    with pytest.raises(ValueError, match="none of namespace"):
        model_name(text)
