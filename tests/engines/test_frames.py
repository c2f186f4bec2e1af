"""A message whose frame is known is the one that the contract's adapter makes, byte for byte."""

from array import array

import pytest

from smg.core.backends import Bootstrap, EngineRequest, Leg
from smg.core.errors import GatewayError
from smg.core.request import Constraint, Limits, Logprobs, Sampling
from smg.engines import frames
from smg.engines.frames import Frames
from smg.engines.table import adapter
from tests.engines.contracts import NAMES

# One for each field that a message depends on.
CHANGES = [
    {},
    {"sampling": Sampling(temperature=0.0)},
    {"sampling": Sampling(temperature=0.7)},
    {"sampling": Sampling(top_p=0.5)},
    {"sampling": Sampling(top_k=3)},
    {"sampling": Sampling(min_p=0.25)},
    {"sampling": Sampling(frequency_penalty=0.5)},
    {"sampling": Sampling(presence_penalty=0.5)},
    {"sampling": Sampling(repetition_penalty=1.5)},
    {"sampling": Sampling(seed=7)},
    {"sampling": Sampling(logit_bias={3: 1.0})},
    {"sampling": Sampling(logit_bias={4: 1.0})},
    {"limits": Limits()},
    {"limits": Limits(max_tokens=8)},
    {"limits": Limits(max_tokens=9, min_tokens=2)},
    {"stop_ids": (1, 2)},
    {"ignore_eos": True},
    {"n": 2},
    {"logprobs": Logprobs()},
    {"logprobs": Logprobs(top=2)},
    {"logprobs": Logprobs(prompt=True)},
    {"constraint": Constraint("regex", "a+")},
    {"constraint": Constraint("regex", "b+")},
    {"dp_rank": 0},
    {"dp_rank": 1},
    {"lora": "adapter"},
    {"require_reasoning": True},
    {"leg": Leg("prefill", Bootstrap("h", 1, 2))},
]


def request(**changes) -> EngineRequest:
    fields = {"id": "r-1", "ids": [5, 6], "sampling": Sampling(), "limits": Limits(max_tokens=9), "vocab_size": 16}
    return EngineRequest(**(fields | changes))


def outcome(encoding, given: EngineRequest) -> bytes | tuple[str, str | None]:
    try:
        return encoding.generate(given)
    except GatewayError as error:
        return error.code, error.param


@pytest.mark.parametrize("contract", NAMES)
def test_messages_are_those_of_the_adapter_known_or_not(contract):
    plain = adapter(contract)
    known = Frames(plain)
    for _ in range(2):
        for changes in CHANGES:
            for more in ({}, {"id": "another-1", "ids": array("I", [1, 300, 70_000])}, {"ids": []}, {"id": "x" * 200}):
                given = request(**changes, **more)
                assert outcome(known, given) == outcome(plain, given), (changes, more)


@pytest.mark.parametrize("contract", NAMES)
def test_what_is_no_token_id_is_refused_each_time(contract):
    known = Frames(adapter(contract))
    for ids in ([-1], [2**32], ["a"], [5], [2**32]):
        given = request(ids=ids)
        assert outcome(known, given) == outcome(adapter(contract), given)


def test_only_so_many_are_kept(monkeypatch):
    monkeypatch.setattr(frames, "MOST", 3)
    known = Frames(adapter("vllm"))
    for seed in [*range(10), *range(10)]:
        given = request(sampling=Sampling(seed=seed))
        assert known.generate(given) == adapter("vllm").generate(given)
        assert len(known._known) <= 3


def test_every_field_of_a_request_is_accounted_for():
    """A new field belongs in the shape, unless it is one of those that no message without a constraint depends on."""
    in_shape = {"sampling", "limits", "stop_ids", "ignore_eos", "n", "logprobs", "dp_rank", "lora", "require_reasoning"}
    written_each_time, never_kept = {"id", "ids"}, {"constraint", "leg", "media"}
    only_for_constraints_and_biases, header = {"from_first_token", "vocab_size"}, {"trace"}
    assert set(EngineRequest.__struct_fields__) == (
        in_shape | written_each_time | never_kept | only_for_constraints_and_biases | header
    )
    shaped = {"temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"}
    assert set(Sampling.__struct_fields__) == shaped | {"seed", "logit_bias"}
    # ``usual`` has become ``max_tokens`` by then, and ``paths`` are for errors.
    assert set(Limits.__struct_fields__) == {"max_tokens", "min_tokens", "usual", "paths"}
