"""Information on models and on the gateway."""

import pytest

from smg._version import __version__
from smg.fleet.records import ModelRecord
from tests.api.test_ops_routes import get
from tests.pipeline.fakes import EOS, world


@pytest.fixture
def place():
    place = world({"w1": [[]], "w2": [[]]}, model="qwen", context_length=64, default_sampling={"top_p": 0.8})
    place.fleet.workers["w2"].labels = {
        "model_path": "org/qwen",
        "tokenizer_path": "org/qwen-tokenizer",
        "is_generation": "true",
        "model_type": "qwen3",
        "architectures": '["Qwen3ForCausalLM"]',
        "vocab_size": "1000",
    }
    return place


class TestModel:
    async def test_is_what_a_ready_engine_tells(self, place):
        place.fleet.set("w1", "not_ready")
        assert await get(place, "/get_model_info") == (
            200,
            {
                "model_path": "org/qwen",
                "tokenizer_path": "org/qwen-tokenizer",
                "served_model_name": "qwen",
                "is_generation": True,
                "model_type": "qwen3",
                "architectures": ["Qwen3ForCausalLM"],
                "context_length": 64,
                "vocab_size": 1000,
                "eos_token_ids": [EOS],
                "preferred_sampling_params": {"top_p": 0.8},
                "weight_version": "default",
            },
        )

    async def test_of_several_models_one_has_to_be_named(self, place):
        place.fleet.snapshot().models.append(ModelRecord("llama"))
        status, body = await get(place, "/get_model_info")
        assert (status, body["error"]["code"]) == (400, "missing_model")
        status, body = await get(place, "/get_model_info", model="llama")
        assert (status, body["served_model_name"], body["model_path"]) == (200, "llama", "llama")

    async def test_an_unknown_model(self, place):
        status, body = await get(place, "/get_model_info", model="nope")
        assert (status, body["error"]["code"]) == (404, "model_not_found")


async def test_the_gateway(place):
    place.fleet.set("w1", "failed")
    place.fleet.region.requests_add(1, 3)
    assert await get(place, "/get_server_info") == (
        200,
        {
            "router_type": "smg-server",
            "version": __version__,
            "policy": "round_robin",
            "request_processes": 1,
            "in_flight_requests": 3,
            "total_workers": 2,
            "healthy_workers": 1,
            "external_workers": 0,
            "total_models": 1,
            "models": ["qwen"],
            "worker_urls": ["grpc://w1", "grpc://w2"],
            "draining": False,
        },
    )
