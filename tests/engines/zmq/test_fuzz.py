"""Steps of engines over ZeroMQ with anything in them: read, or a ValueError and no more (spec engine-contract 6)."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core.batch import TokenBatch
from smg.core.request import Logprobs
from smg.engines.zmq.driver import WIRES
from tests.engines.zmq.test_zmq import request

ASKED = [request(), request(logprobs=Logprobs(2, prompt=True))]

numbers = st.integers(-1, 300) | st.integers(-(2**63), 2**64 - 1)
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=4) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)
ids = st.lists(numbers, max_size=4)
tensor = st.tuples(st.sampled_from(["<i8", "<f4", "|O", "V0", "x"]), st.lists(numbers, max_size=3), anything)
stats = st.dictionaries(st.sampled_from(["num_prompt_tokens", "num_cached_tokens", "x"]), anything, max_size=3)
output = st.tuples(
    st.just("r"),
    ids | anything,
    st.none() | st.lists(tensor, max_size=4) | anything,
    st.none() | st.lists(tensor, max_size=4) | anything,
    anything,
    st.none() | numbers,
    st.none() | numbers | st.text(max_size=3),
    *[anything] * 4,
    st.none() | stats,
).map(list)
load = st.dictionaries(st.sampled_from(["num_running_reqs", "kv_cache_usage", "prefix_cache_stats"]), anything)
core_step = st.tuples(numbers, st.lists(output, max_size=3), st.none() | load, st.floats(), st.none() | anything).map(
    list
)
column = st.lists(anything, max_size=2)
scheduler_step = st.tuples(
    st.just("BatchTokenIDOutSlim"),
    st.just(["r"]),
    st.lists(ids, min_size=1, max_size=1) | column,
    st.lists(st.text(max_size=5), min_size=1, max_size=1) | column,
    *[st.lists(numbers, min_size=1, max_size=1) | column] * 3,
    st.lists(st.lists(st.floats(), max_size=4), min_size=1, max_size=1) | column,
    st.lists(ids, min_size=1, max_size=1) | column,
    *[numbers] * 5,
).map(list)
STEPS = {"vllm": core_step, "tokenspeed": scheduler_step}


def look(name: str, frames: list[bytes]) -> None:
    """Read a step as the driver does; only ValueError is caught there."""
    wire = WIRES[name]
    with contextlib.suppress(ValueError):
        for _, found in wire.step(frames).outputs:
            for asked in ASKED:
                with contextlib.suppress(ValueError):
                    told = wire.tokens(found)
                    assert told is None or isinstance(told[0], list)
                with contextlib.suppress(ValueError):
                    assert isinstance(wire.batch(found, 0, asked, frames), TokenBatch)


def packed(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


@pytest.mark.parametrize("name", STEPS)
class TestSteps:
    @given(st.data())
    def test_any_values(self, name, data):
        behind = data.draw(st.lists(st.binary(max_size=32), max_size=3))
        look(name, [packed(data.draw(STEPS[name])), *behind])

    @given(st.data())
    def test_mutated_bytes(self, name, data):
        mutated = bytearray(packed(data.draw(STEPS[name])))
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(mutated)))
            mutated[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        look(name, [bytes(mutated)])

    @given(st.lists(st.binary(max_size=40), max_size=3))
    def test_random_bytes(self, name, frames):
        look(name, frames)
