"""Which models have a renderer, and that their parsers are found by it."""

import pytest

from smg.config.settings import ModelSettings
from smg.parsing.choose import choose
from smg.text.native.table import find_native
from tests.text.native.models import DEEPSEEK, KIMI, model


@pytest.mark.parametrize(
    ("architecture", "specials", "parsers"),
    [
        ("DeepseekV32ForCausalLM", DEEPSEEK, ("deepseek_v31", "deepseek32")),
        ("DeepseekV4ForCausalLM", DEEPSEEK, ("deepseek_v4", "deepseek_v4")),
        ("KimiK3ForConditionalGeneration", KIMI, ("kimi_k3", "kimi_k3")),
    ],
)
def test_the_formats_of_answers_follow_the_renderer(tmp_path, architecture, specials, parsers):
    text = model(tmp_path, architecture, specials)
    found = choose(ModelSettings(), "any-name", text.source.default, text.tokenizer.token_id)
    assert (found.reasoning.name, found.tools.name) == parsers


@pytest.mark.parametrize(
    ("config", "renders", "completes"),
    [
        ({"architectures": ["KimiK3ForConditionalGeneration"], "model_type": "x"}, True, False),
        ({"model_type": "kimi_k3"}, True, False),
        ({"model_type": "kimi_k25"}, False, True),
    ],
)
def test_models_are_told_by_architecture_or_type(config, renders, completes):
    row = find_native(config)
    assert row is not None
    assert (row.render is not None, row.complete is not None) == (renders, completes)


@pytest.mark.parametrize("config", [{}, {"model_type": "llama", "architectures": None}, {"architectures": [1]}])
def test_all_others_have_their_template(config):
    assert find_native(config) is None
