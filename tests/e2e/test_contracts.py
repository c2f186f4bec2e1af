"""One gateway in front of engine processes of every contract, found out by probing."""

import contextlib

import pytest

from tests.engines_for_tests import mock_process
from tests.gateway import running, settings, wait_for

NAMES = ("vllm", "sglang", "trtllm", "tokenspeed", "mlx")
QUESTION = [{"role": "user", "content": "x"}]


@pytest.mark.e2e
def test_engines_of_every_contract_are_found_and_answer(tmp_path):
    with contextlib.ExitStack() as stack:
        addresses = [
            stack.enter_context(mock_process("--contract", name, "--model", name, "--text", f"hello from {name}"))
            for name in NAMES
        ]
        urls = [f"grpc://{address}" for address in addresses]
        gateway = stack.enter_context(running(settings(tmp_path, "--worker-urls", *urls)))
        client = gateway.client()
        wait_for(lambda: {model.id for model in client.models.list().data} == set(NAMES), 20, "five models")
        workers = gateway.get("/workers").json()["workers"]
        assert {(each["runtime_type"], each["models"][0]) for each in workers} == {(name, name) for name in NAMES}
        assert "secret" not in gateway.get("/workers").text
        for name in NAMES:
            whole = client.chat.completions.create(model=name, messages=QUESTION)
            assert whole.choices[0].message.content == f"hello from {name}"
            stream = client.chat.completions.create(model=name, messages=QUESTION, stream=True)
            text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
            assert text == f"hello from {name}"
        wait_for(lambda: gateway.engine_running() == 0, 10, "idle engines")
