"""Which model uses which format."""

import pytest

from smg.config.load import SettingsError
from smg.config.settings import ModelSettings
from smg.core.request import GenerationRequest, Tool, ToolChoice
from smg.parsing.base import Start
from smg.parsing.choose import choose, named


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("deepseek-ai/DeepSeek-R1", "deepseek_r1"),
        ("DeepSeek-V3.2-Exp", "deepseek_v31"),
        ("QWEN3-8B", "qwen3"),
        ("Qwen3-Thinking", "qwen3_thinking"),
        ("Qwen3-235B-A22B-Thinking-2507", "qwen3"),
        ("QwQ-32B", "deepseek_r1"),
        ("glm45-v2", "glm45"),
        ("glm-5.2-fp8", "glm45"),
        ("GLM-4.6", "glm45"),
        ("Kimi-VL-A3B-Thinking", "kimi"),
        ("moonshotai/Kimi-K2-Thinking", "kimi_thinking"),
        ("Kimi-K2.5", "kimi_k25"),
        ("mm-m2-chat", "minimax"),
        ("nvidia/nemotron-super-49b", "nano_v3"),
        ("step3-fp8", "step3"),
        ("SmolLM2-135M-Instruct", "passthrough"),
        ("unknown", "passthrough"),
    ],
)
def test_reasoning_format_by_model_name(model, expected):
    parsers = choose(ModelSettings(), model)
    assert (parsers.reasoning.name, parsers.tools.name) == (expected, "passthrough")


def test_a_template_that_writes_reasoning_tells_on_an_unknown_name():
    assert choose(ModelSettings(), "my-finetune", "{{ '<think>' }}").reasoning.name == "base"
    assert choose(ModelSettings(), "my-finetune", "{{ messages }}").reasoning.name == "passthrough"
    assert choose(ModelSettings(), "qwen3-8b", "{{ messages }}").reasoning.name == "qwen3"


def test_the_settings_win():
    settings = ModelSettings(reasoning_parser="kimi", tool_call_parser="passthrough")
    assert choose(settings, "Qwen3").reasoning.name == "kimi"


def test_unknown_names_are_listed_with_the_known_ones():
    with pytest.raises(SettingsError) as caught:
        named(ModelSettings(reasoning_parser="qwen4", tool_call_parser="nope"))
    assert len(caught.value.problems) == 2
    assert "--reasoning-parser" in caught.value.problems[0]
    assert "'qwen4'" in caught.value.problems[0]
    assert "qwen3" in caught.value.problems[0]
    assert "passthrough" in caught.value.problems[1]


@pytest.mark.parametrize(
    ("model", "fields", "plain"),
    [
        ("SmolLM2", {}, True),
        ("Qwen3", {}, False),
        ("Qwen3", {"separate_reasoning": False}, True),
        ("SmolLM2", {"tools": [Tool("ping")]}, True),
        ("SmolLM2", {"tools": [Tool("ping")], "tool_choice": ToolChoice("none")}, True),
    ],
)
def test_only_what_is_needed_is_parsed(model, fields, plain):
    request = GenerationRequest("chat", model, **fields)
    assert choose(ModelSettings(), model).chain(request, 0, Start()).plain is plain
