"""Which model uses which format, and what a chain is made of."""

import pytest

from smg.config.load import SettingsError
from smg.config.settings import ModelSettings
from smg.core.events import ToolCallStart
from smg.core.request import GenerationRequest, Message, Tool, ToolCall, ToolChoice
from smg.core.stream import RowOutput
from smg.parsing.base import Start
from smg.parsing.choose import choose, named
from smg.parsing.table import REASONING, TOOLS
from tests.parsing.runs import row


@pytest.mark.parametrize(
    ("model", "reasoning", "tools"),
    [
        ("deepseek-ai/DeepSeek-R1", "deepseek_r1", "deepseek"),
        ("DeepSeek-R1-0528", "deepseek_r1", "deepseek"),
        ("deepseek-ai/DeepSeek-V3", "passthrough", "deepseek"),
        ("DeepSeek-V3.1", "deepseek_v31", "deepseek31"),
        ("DeepSeek-V3.2-Exp", "deepseek_v31", "deepseek31"),
        ("DeepSeek-V3.2", "deepseek_v31", "deepseek32"),
        ("DeepSeek-V4", "deepseek_v4", "deepseek_v4"),
        ("QWEN3-8B", "qwen3", "qwen"),
        ("Qwen2.5-7B-Instruct", "passthrough", "qwen"),
        ("Qwen3-Thinking", "qwen3_thinking", "qwen"),
        ("Qwen3-235B-A22B-Thinking-2507", "qwen3", "qwen"),
        ("Qwen/Qwen3-Coder-30B-A3B", "qwen3", "qwen_xml"),
        ("Qwen/Qwen3.5-4B", "qwen3", "qwen_xml"),
        ("QwQ-32B", "deepseek_r1", "qwen"),
        ("glm45-v2", "glm45", "glm45_moe"),
        ("GLM-4.6", "glm45", "glm45_moe"),
        ("GLM-4.7", "glm45", "glm47_moe"),
        ("glm-5.2-fp8", "glm45", "glm47_moe"),
        ("glm-5", "glm45", "glm47_moe"),
        ("Kimi-VL-A3B-Thinking", "kimi", "passthrough"),
        ("moonshotai/Kimi-K2-Thinking", "kimi_thinking", "kimik2"),
        ("Kimi-K2.5", "kimi_k25", "kimik2"),
        ("moonshotai/Kimi-K3", "kimi_k3", "kimi_k3"),
        ("Kimi_K3", "kimi_k3", "kimi_k3"),
        ("mm-m2-chat", "minimax", "passthrough"),
        ("MiniMax-M2", "minimax", "minimax_m2"),
        ("MiniMax-M1-80k", "minimax", "minimax_m1"),
        ("nvidia/nemotron-super-49b", "nano_v3", "passthrough"),
        ("step3-fp8", "step3", "step3"),
        ("Step-3.5-Flash", "step3p5", "qwen_xml"),
        ("command-a-03-2025", "cohere_cmd", "cohere"),
        ("inkling-1", "inkling", "inkling"),
        ("Mistral-7B-Instruct", "passthrough", "mistral"),
        ("Ministral-8B", "passthrough", "mistral"),
        ("Magistral-Small", "mistral", "mistral"),
        ("Devstral-Small", "passthrough", "mistral"),
        ("meta-llama/Llama-3.1-8B", "passthrough", "json"),
        ("meta-llama/Llama-3.2-3B", "passthrough", "llama"),
        ("Llama-4-Scout", "passthrough", "pythonic"),
        ("Hermes-3-Llama-3.1-8B", "passthrough", "qwen"),
        ("gemma-3-27b", "passthrough", "json"),
        ("gemma-4-31b", "gemma4", "gemma4"),
        ("Phi-4-mini", "passthrough", "phi4mini"),
        ("granite-3.3-8b", "granite", "granite"),
        ("granite-4.0-h", "passthrough", "qwen"),
        ("sarashina2.2", "passthrough", "sarashina"),
        ("Seed-OSS-36B", "seed_oss", "seed_oss"),
        ("upstage/Solar-Open-100B", "solar_open", "solar_open"),
        ("upstage/Solar-Open2", "solar_open2", "solar_open2"),
        ("meituan-longcat/LongCat-Flash-Thinking", "longcat", "longcat"),
        ("FreedomIntelligence/openPangu-Embedded-7B", "pangu", "pangu"),
        ("LGAI-EXAONE/EXAONE-4.0-32B", "qwen3", "qwen"),
        ("iquest-coder-v2", "passthrough", "iquest_coder"),
        ("stepfun-ai/Step-Audio-2-mini", "passthrough", "step_audio_2"),
        ("TeleChat4", "passthrough", "telechat4"),
        ("rwkv7-g1", "passthrough", "rwkv"),
        ("gpt-4o", "passthrough", "json"),
        ("SmolLM2-135M-Instruct", "passthrough", "passthrough"),
        ("unknown", "passthrough", "passthrough"),
    ],
)
def test_formats_by_model_name(model, reasoning, tools):
    parsers = choose(ModelSettings(), model)
    assert (parsers.reasoning.name, parsers.tools.name) == (reasoning, tools)


GLM_LINES = "<tool_call>{function-name}\\n<arg_key>{k}</arg_key>\\n<arg_value>"


@pytest.mark.parametrize(
    ("template", "reasoning", "tools"),
    [
        ("<|channel>thought", "gemma4", "gemma4"),
        ("◁think▷", "kimi", "passthrough"),
        ("<|open|>x<|sep|>", "kimi_k3", "kimi_k3"),
        ("[THINK] [TOOL_CALLS]", "mistral", "mistral"),
        ("[TOOL_CALLS]", "passthrough", "mistral"),
        ("<minimax:tool_call>", "minimax", "minimax_m2"),
        ("<｜DSML｜function_calls>", "deepseek_v31", "deepseek32"),
        ("<｜DSML｜tool_calls>", "deepseek_v4", "deepseek_v4"),
        ("<｜DSML｜ calls>", "deepseek_v4", "deepseek_v4"),
        ("<｜tool▁calls▁begin｜> <｜tool▁sep｜> ```json", "deepseek_v31", "deepseek"),
        ("<｜tool▁calls▁begin｜> <｜tool▁sep｜>", "deepseek_v31", "deepseek31"),
        ("<|tool_call:start|>f<|tool_arg:start|>", "solar_open2", "solar_open2"),
        ("<longcat_tool_call>", "longcat", "longcat"),
        ("[unused11][{}][unused12]", "pangu", "pangu"),
        ("<think><iquestcoder_tool_call>", "glm45", "iquest_coder"),
        ("<think><tool_call>f<param_key>k</param_key><param_value>", "qwen3", "telechat4"),
        ("<｜GCML｜tool_calls>", "passthrough", "gigachat35"),
        ("<tool_calls> <tool_sep>", "hy_v3", "hy_v3"),
        ("<function name= <param name=", "passthrough", "minicpm5"),
        ("<steptml:invoke", "step3", "step3"),
        ("<seed:tool_call>", "seed_oss", "seed_oss"),
        ("<think> <tool_call><function=f><parameter=", "qwen3", "qwen_xml"),
        (GLM_LINES, "glm45", "glm45_moe"),
        ("<tool_call>{function-name}<arg_key>{k}</arg_key><arg_value>", "glm45", "glm47_moe"),
        ("<TOOLCALL>", "passthrough", "nemotron_json"),
        ('<think> <tool_call>\\n{"name": <function-name>', "qwen3", "qwen"),
        ('<tool_call>\\n{"name": <function-name>', "passthrough", "qwen"),
        ("functools[", "passthrough", "phi4mini"),
        (">>> recipient", "passthrough", "functionary32"),
        ("<function=example>{", "passthrough", "functionary31"),
        ("{{ '<think>' }}", "qwen3", "passthrough"),
        ("{{ messages }}", "passthrough", "passthrough"),
    ],
)
def test_formats_by_template(template, reasoning, tools):
    parsers = choose(ModelSettings(), "my-finetune", template)
    assert (parsers.reasoning.name, parsers.tools.name) == (reasoning, tools)


@pytest.mark.parametrize(
    ("token", "reasoning", "tools"),
    [
        ("<|inner_prefix|>", "apertus", "apertus"),
        ("<|tool_calls_section_begin|>", "kimi_k25", "kimik2"),
        ("<|tool_call_start|>", "passthrough", "lfm2"),
    ],
)
def test_formats_by_vocabulary(token, reasoning, tools):
    parsers = choose(ModelSettings(), "my-finetune", "", lambda text: 7 if text == token else None)
    assert (parsers.reasoning.name, parsers.tools.name) == (reasoning, tools)


def test_a_template_is_better_evidence_than_a_name():
    assert choose(ModelSettings(), "Hermes-on-my-Llama-3.2", '<tool_call>\n{"name"').tools.name == "qwen"
    # Of reasoning, <think> alone tells less than a name.
    assert choose(ModelSettings(), "step-3.5", "<think>").reasoning.name == "step3p5"


def test_the_settings_win():
    settings = ModelSettings(reasoning_parser="kimi", tool_call_parser="plain")
    parsers = choose(settings, "Qwen3", '<think><tool_call>{"name"')
    assert (parsers.reasoning.name, parsers.tools.name) == ("kimi", "passthrough")
    assert choose(ModelSettings(reasoning_parser="passthrough"), "x", "<think>").reasoning.name == "passthrough"


@pytest.mark.parametrize(
    "alias", ["hermes", "qwen_coder", "llama3_json", "glm45", "hy4", "ling", "deepseek_v4.1", "dots3"]
)
def test_other_names_of_formats(alias):
    assert choose(ModelSettings(tool_call_parser=alias), "x").tools is row(TOOLS, alias)


@pytest.mark.parametrize("rows", [REASONING, TOOLS], ids=["reasoning", "tools"])
def test_no_name_stands_for_two_formats(rows):
    names = [name for one in rows for name in (one.name, *one.aliases)]
    assert sorted(names) == sorted(set(names) | {one.name for one in rows if one.name in one.aliases})


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
        ("Qwen3", {"separate_reasoning": False, "tools": [Tool("ping")]}, False),
        ("SmolLM2", {"tools": [Tool("ping")]}, True),
        ("Qwen2.5", {"tools": [Tool("ping")]}, False),
        ("Qwen2.5", {"tools": [Tool("ping")], "tool_choice": ToolChoice("none")}, True),
    ],
)
def test_only_what_is_needed_is_parsed(model, fields, plain):
    request = GenerationRequest("chat", model, **fields)
    assert choose(ModelSettings(), model).chain(request, 0, Start()).plain is plain


@pytest.mark.parametrize(
    ("model", "text", "expected"),
    [
        ("Kimi-K2", "<|tool_call_begin|>ping<|tool_call_argument_begin|>{}", "functions.ping:2"),
        ("Kimi-K3", '<|open|>tools<|sep|><|open|>call tool="ping"<|sep|><|close|>call<|sep|>', "ping:2"),
    ],
)
def test_TP_07_numbering_goes_on_from_the_history(model, text, expected):
    earlier = Message("assistant", tool_calls=[ToolCall("a", "ping", "{}"), ToolCall("b", "ping", "{}")])
    request = GenerationRequest("chat", model, messages=[earlier], tools=[Tool("ping")])
    chain = choose(ModelSettings(), model).chain(request, 0, Start(thinking=False, tools=request.tools))
    events = chain.feed(RowOutput(0, text, (), None))
    assert [event.id for event in events if isinstance(event, ToolCallStart)] == [expected]


def test_OA_09_the_request_says_how_many_calls_count_and_the_settings_what_unknown_ones_are():
    call = '<tool_call>{"name": "nope"}</tool_call><tool_call>{"name": "ping"}</tool_call>'
    for policy, parallel, names in ((None, True, ["nope", "ping"]), (None, False, ["nope"]), ("drop", True, ["ping"])):
        choice = ToolChoice(parallel=parallel)
        request = GenerationRequest("chat", "Qwen3", tools=[Tool("ping")], tool_choice=choice)
        chain = choose(ModelSettings(unknown_tool_policy=policy), "Qwen3").chain(request, 0, Start(tools=request.tools))
        events = chain.feed(RowOutput(0, call, (), None))
        assert [event.name for event in events if isinstance(event, ToolCallStart)] == names


def test_special_tokens_of_a_format_are_shown_to_its_parser():
    """Otherwise skip_special_tokens would take the markers away before the parser sees them."""
    expected = {
        "deepseek": {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁begin｜>"},
        "kimik2": {"<|tool_call_argument_begin|>", "<|tool_call_begin|>", "<|tool_calls_section_begin|>"},
        "mistral": {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
        "glm45_moe": {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_value>"},
        "kimi_k3": {"<|open|>", "<|close|>", "<|sep|>"},
        "gemma4": {"<|tool_call>", "<tool_call|>", '<|"|>'},
        "deepseek32": {"｜DSML｜"},
        "inkling": {"<|content_invoke_tool_json|>", "<|message_model|>"},
    }
    for name, texts in expected.items():
        factory = row(TOOLS, name).factory
        assert factory is not None
        assert texts <= set(factory(Start()).markers), name
