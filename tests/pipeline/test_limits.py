"""What the model's record says about a request (spec text-pipeline 17, engine-contract 2.8)."""

import pytest

from smg.core.errors import GatewayError
from smg.core.request import Limits
from smg.fleet.records import ModelRecord
from smg.pipeline.limits import fit, must_generate


@pytest.mark.parametrize(
    ("model", "prompt", "fits"),
    [
        (ModelRecord("m", context_length=10, max_input_length=6), 6, True),
        (ModelRecord("m", context_length=10, max_input_length=6), 7, False),
        (ModelRecord("m", max_input_length=6), 7, False),
        (ModelRecord("m", context_length=10), 9, True),
        (ModelRecord("m", context_length=10), 10, False),
        (ModelRecord("m"), 10_000, True),
    ],
)
def test_prompts_have_a_limit_of_their_own(model, prompt, fits):
    if fits:
        fit(model, Limits(max_tokens=1), prompt, "prompt")
        return
    with pytest.raises(GatewayError) as caught:
        fit(model, Limits(max_tokens=1), prompt, "prompt")
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert str(prompt) in caught.value.message
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("limits", "resolved"),
    [
        (Limits(), Limits(6)),
        (Limits(usual=4), Limits(4)),
        (Limits(usual=16), Limits(6)),
        (Limits(None, 5, 16), Limits(6, 5)),
        (Limits(6, 6), Limits(6, 6)),
        (Limits(0), Limits(0)),
    ],
)
def test_without_a_limit_generation_may_fill_the_context(limits, resolved):
    assert fit(ModelRecord("m", context_length=10), limits, 4, "prompt") == resolved


@pytest.mark.parametrize(
    ("limits", "param"),
    [
        (Limits(7), "max_tokens"),
        (Limits(7, paths=("most", "least")), "most"),
        # No room for as many as are wanted at least: an answer with fewer would not be what was asked for.
        (Limits(None, 7), "min_tokens"),
        (Limits(None, 7, 16, ("most", "least")), "least"),
    ],
)
def test_the_limit_that_does_not_fit_is_named(limits, param):
    with pytest.raises(GatewayError) as caught:
        fit(ModelRecord("m", context_length=10), limits, 4, "prompt")
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)
    assert "11 were requested: 4 in the prompt and 7 for the completion" in caught.value.message


def test_a_model_that_embeds_does_not_chat():
    must_generate(ModelRecord("m"))
    with pytest.raises(GatewayError) as caught:
        must_generate(ModelRecord("bge", generates=False))
    assert (caught.value.status, caught.value.param) == (400, "model")
    assert "'bge' makes embeddings" in caught.value.message
