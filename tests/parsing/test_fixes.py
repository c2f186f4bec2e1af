"""Every **[FIX]** of spec parsers by name: where the reference goes wrong, and what holds here. (What spec parsers 4
lists, S1 to S14, is in ``test_contract.py``.)"""

import pytest

from smg.config.settings import ModelSettings
from smg.core.request import GenerationRequest, Tool
from smg.core.stream import RowOutput
from smg.parsing.base import Start
from smg.parsing.choose import choose
from tests.parsing.runs import STANDARD, call, chain_of, feed, fold, parse
from tests.splits import splits

pytestmark = pytest.mark.usefixtures("random_splits")

OUTSIDE = Start(prompt_tail="<|im_start|>assistant\n")


def test_FIX_1_choices_share_no_parser():
    """Section 1: there, pooled parsers behind a mutex."""
    parsers = choose(ModelSettings(reasoning_parser="qwen3", tool_call_parser="hermes"), "m")
    request = GenerationRequest("chat", "m", tools=[Tool("ping")])
    texts = ("<think>a</think>b", '<tool_call>{"name": "ping"}</tool_call>', "c < d <think")
    chains = [parsers.chain(request, choice, Start(tools=request.tools)) for choice in range(3)]
    events: list[list] = [[], [], []]
    # The choices' characters by turns.
    for at in range(max(map(len, texts))):
        for chain, text, out in zip(chains, texts, events, strict=True):
            out += chain.feed(RowOutput(0, text[at : at + 1], (), None))
    found = [fold([*out, *chain.finish("stop")])[:3] for chain, out in zip(chains, events, strict=True)]
    assert found == [("a", "b", []), ("", "", [("ping", "{}")]), ("", "c < d <think", [])]


@pytest.mark.parametrize(
    ("model", "reasoning"),
    [
        ("zai-org/GLM-4.5-Air", "glm45"),
        ("zai-org/GLM-4.6", "glm45"),
        ("zai-org/GLM-4.7-Flash", "glm45"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek_v31"),
        ("deepseek-ai/DeepSeek-V4", "deepseek_v4"),
        ("Qwen/QwQ-32B", "deepseek_r1"),
        ("mistralai/Magistral-Small-2509", "mistral"),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "seed_oss"),
        ("tencent/Hunyuan-A13B-Instruct", "hunyuan_a13b"),
        ("XiaomiMiMo/MiMo-V2-Flash", "qwen3"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite"),
        ("Qwen/Qwen2.5-7B-Instruct", "passthrough"),
    ],
)
def test_FIX_2_1_models_whose_reasoning_no_name_matched(model, reasoning):
    assert choose(ModelSettings(), model).reasoning.name == reasoning


def test_FIX_2_1_a_prompt_that_has_opened_the_block_whatever_the_name_says():
    """The Thinking-2507 line: its name is that of a model with a toggle, its template always opens the block."""
    name = choose(ModelSettings(), "Qwen3-235B-A22B-Thinking-2507").reasoning.name
    for chunks in splits(["I think.</think>\n\nHi!"]):
        assert parse(name, chunks, Start(prompt_tail="<|im_start|>assistant\n<think>\n")) == ("I think.", "\n\nHi!")


@pytest.mark.parametrize(
    ("model", "tools"),
    [
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "qwen"),
        ("mistralai/Ministral-8B-Instruct-2410", "mistral"),
        ("mistralai/Magistral-Small-2509", "mistral"),
        ("mistralai/Devstral-Small-2507", "mistral"),
        ("Qwen/QwQ-32B", "qwen"),
        ("ibm-granite/granite-3.1-8b-instruct", "granite"),
        ("microsoft/Phi-4-mini-instruct", "phi4mini"),
        ("stepfun-ai/Step-3.5-Flash", "qwen_xml"),
        ("MiniMaxAI/MiniMax-M1-80k", "minimax_m1"),
        ("MiniMaxAI/MiniMax-M3", "minimax_m3"),
        ("google/gemma-4-31b-it", "gemma4"),
        ("moonshotai/Kimi-K2-Instruct", "kimik2"),
    ],
)
def test_FIX_2_2_models_whose_calls_were_read_in_another_format(model, tools):
    assert choose(ModelSettings(), model).tools.name == tools


@pytest.mark.parametrize(
    ("written", "value"),
    [(r"\ud83d\ude00", "😀"), (r"\ud83d", "\ufffd"), (r"a\ude00b", "a\ufffdb"), (r"\u00e9\u4eac", "é京")],
)
def test_FIX_3_surrogate_pairs_in_JSON(written, value):
    for chunks in splits([f'<tool_call>{{"name": "run", "arguments": {{"cmd": "{written}"}}}}</tool_call>']):
        assert call("hermes", chunks).read() == [("run", {"cmd": value})]


def test_FIX_5_1_text_before_the_opener_is_content():
    for chunks in splits(["Sure. <think>a</think>b"]):
        assert parse("qwen3", chunks, OUTSIDE) == ("a", "Sure. b")


def test_FIX_5_1_the_beginning_of_a_marker_at_the_end_of_a_longer_chunk_is_held():
    chain = chain_of("qwen3", Start(prompt_tail="<think>"))
    assert fold(feed(chain, ["abc</thi"]))[:2] == ("abc", "")
    assert fold(feed(chain, ["nk>d"]))[:2] == ("", "d")


def test_FIX_5_1_every_block_counts():
    for chunks in splits(["<think>a</think>b<think>c</think>d"]):
        assert parse("qwen3", chunks, OUTSIDE) == ("ac", "bd")


@pytest.mark.parametrize(("text", "expected"), [("<think>a <", ("a <", "")), ("b </thin", ("", "b </thin"))])
def test_FIX_5_1_what_is_held_at_the_end_comes_out(text, expected):
    for chunks in splits([text]):
        assert parse("qwen3", chunks, OUTSIDE) == expected


@pytest.mark.parametrize(("value", "read"), [('{"a": [1]}', {"a": [1]}), ("3", 3), ("x y", "x y")])
def test_FIX_6_16_a_value_without_a_schema_has_one_type_however_it_comes(value, read):
    """There, nested JSON was a text in whole answers and an object in streams."""
    parameter = f'<parameter name="free">{value}</parameter>'
    text = f'<minimax:tool_call>\n<invoke name="run">\n{parameter}\n</invoke>\n</minimax:tool_call>'
    for chunks in splits([text]):
        assert call("minimax_m2", chunks, start=Start(tools=STANDARD)).read() == [("run", {"free": read})]


HARMONY = Start(prompt_tail="<|start|>assistant", tools=STANDARD)


def harmony(*messages):
    return "<|start|>assistant".join(messages)


def calling(name, arguments, end="<|call|>"):
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}{end}"


def thinking(text):
    return f"<|channel|>analysis<|message|>{text}<|end|>"


def test_FIX_text_pipeline_16_several_analysis_messages_are_joined():
    for chunks in splits([harmony(thinking("one"), thinking("two"), "<|channel|>final<|message|>c<|return|>")]):
        assert parse("gpt_oss", chunks, HARMONY) == ("one\ntwo", "c")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_FIX_text_pipeline_16_calls_and_their_arguments_are_all_told(size):
    """Arguments in the piece with the recipient, a second call of the same function, several in one piece."""
    text = harmony(calling("run", '{"cmd": "a"}'), calling("run", '{"cmd": "b"}'), calling("ping", "{}"))
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    message = call("gpt_oss", chunks, start=HARMONY, reasoning="gpt_oss")
    assert message.read() == [("run", {"cmd": "a"}), ("run", {"cmd": "b"}), ("ping", {})]
    assert message.finish == "tool_calls"
