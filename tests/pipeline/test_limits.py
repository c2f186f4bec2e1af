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
        fit(model, Limits(max_tokens=1), prompt)
        return
    with pytest.raises(GatewayError) as caught:
        fit(model, Limits(max_tokens=1), prompt)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert str(prompt) in caught.value.message


def test_a_model_that_embeds_does_not_chat():
    must_generate(ModelRecord("m"))
    with pytest.raises(GatewayError) as caught:
        must_generate(ModelRecord("bge", generates=False))
    assert (caught.value.status, caught.value.param) == (400, "model")
    assert "'bge' makes embeddings" in caught.value.message
