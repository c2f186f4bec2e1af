"""Our parsers beside SGLang's own, on outputs of many families, read whole and streamed: they agree but for what is
listed.

The list is docs/parser-differences.md. SGLang's parsers come from the package llm-router-utils, which is no dependency
of the tests; the page tells how to install it beside them.
"""

import json

import pytest

from smg.parsing.base import Start
from smg.parsing.table import TOOLS
from tests.parsing.peers import ASSISTANT, CASES, THOUGHTS, ours, pieces, thought, written
from tests.parsing.runs import STANDARD, parse, row

pytestmark = pytest.mark.full

REASON = "needs llm-router-utils (docs/parser-differences.md)"

# Our format by one of its names, and the name of SGLang's parser.
PAIRS = {
    "apertus": "apertus2509",
    "cohere": "cohere_command4",
    "deepseek": "deepseekv3",
    "deepseek31": "deepseekv31",
    "deepseek32": "deepseekv32",
    "deepseek_v4": "deepseekv4",
    "deepseek_v41": "deepseekv41",
    "dots": "dots",
    "gemma4": "gemma4",
    "gigachat3": "gigachat3",
    "gigachat35": "gigachat35",
    "glm45_moe": "glm45",
    "glm47_moe": "glm47",
    "hermes": "hermes",
    "hy_v3": "hunyuan",
    "inkling": "inkling",
    "internlm": "interns1",
    "iquest": "iquest_q1",
    "k2_horizon": "k2_horizon",
    "kimi_k3": "kimi_k3",
    "kimik2": "kimi_k2",
    "lfm2": "lfm2",
    "ling3": "ling3",
    "llama": "llama3",
    "mimo": "mimo",
    "minicpm5": "minicpm5",
    "minimax_m2": "minimax-m2",
    "minimax_m3": "minimax-m3",
    "mistral": "mistral",
    "muse_glimmer": "muse",
    "nanbeige": "nanbeige",
    "poolside_v1": "poolside_v1",
    "pythonic": "pythonic",
    "qwen": "qwen",
    "qwen2.5": "qwen25",
    "qwen_xml": "qwen3_coder",
    "spark25": "spark25",
    "step3": "step3",
    "step3p5": "step3p5",
    "trinity": "trinity",
}
# Where SGLang knows only one of the ways in which a family writes.
SPELLED = {"internlm": ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>")}
BOTH, WHOLE, STREAMED = ("whole", "streamed"), ("whole",), ("streamed",)
# Where SGLang's calls are not those that were written; docs/parser-differences.md says why.
DIFFERENT = {
    ("gemma4", "nested"): BOTH,
    ("gigachat3", "two"): BOTH,
    ("internlm", "two"): STREAMED,
    ("minimax_m2", "odd"): BOTH,
    ("minimax_m3", "nested"): BOTH,
    ("mistral", "two"): STREAMED,
    ("pythonic", "odd"): STREAMED,
    ("step3", "two"): WHOLE,
    ("step3", "odd"): BOTH,
    ("step3", "none"): WHOLE,
}
# Our reasoning format, and the name of SGLang's.
REASONERS = {
    "apertus": "apertus2509",
    "cohere_cmd": "cohere_command4",
    "deepseek_r1": "deepseek-r1",
    "deepseek_v31": "deepseek-v3",
    "deepseek_v4": "deepseek-v4",
    "deepseek_v41": "deepseek-v41",
    "dots": "dots",
    "gemma4": "gemma4",
    "gigachat35": "gigachat35",
    "glm45": "glm45",
    "gpt_oss": "gpt-oss",
    "granite_thinking": "granite_thinking_parser",
    "hy_v3": "hunyuan",
    "inkling": "inkling",
    "intern_s1": "interns1",
    "iquest": "iquest_q1",
    "k2_horizon": "k2_horizon",
    "kimi": "kimi",
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_k3",
    "ling3": "ling3",
    "mimo": "mimo",
    "minimax": "minimax",
    "minimax_m3": "minimax-m3",
    "mistral": "mistral",
    "muse_glimmer": "muse",
    "nanbeige": "nanbeige",
    "nano_v3": "nemotron_3",
    "poolside_v1": "poolside_v1",
    "qwen3": "qwen3",
    "qwen3_thinking": "qwen3-thinking",
    "step3": "step3",
    "step3p5": "step3p5",
}
DIFFERENT_REASONING = {
    ("cohere_cmd", "closed"): BOTH,
    ("cohere_cmd", "cut"): STREAMED,
    ("ling3", "cut"): BOTH,
}


def theirs(name, text, specials):
    """The calls by SGLang, of the whole output and of its tokens one by one; None where arguments are no JSON."""
    parser = pytest.importorskip("llm_router_utils.sglang.srt.function_call.function_call_parser", reason=REASON)
    protocol = pytest.importorskip("llm_router_utils.sglang.srt.entrypoints.openai.protocol", reason=REASON)
    tools = [
        protocol.Tool(type="function", function=protocol.Function(name=tool.name, parameters=tool.parameters))
        for tool in STANDARD
    ]
    whole = [[call.name, call.parameters] for call in parser.FunctionCallParser(tools, name).parse_non_stream(text)[1]]
    streaming = parser.FunctionCallParser(tools, name)
    streamed: dict[int, list[str]] = {}
    deltas = [*map(streaming.parse_stream_chunk, pieces(text, specials)), streaming.parse_stream_end()]
    for call in (call for _, calls in deltas for call in calls):
        one = streamed.setdefault(call.tool_index, ["", ""])
        one[0] += call.name or ""
        one[1] += call.parameters or ""
    return {"whole": _read(whole), "streamed": _read([streamed[index] for index in sorted(streamed)])}


def _read(calls):
    try:
        return [(name, json.loads(arguments or "{}")) for name, arguments in calls]
    except ValueError:
        return None


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", PAIRS)
def test_the_same_calls(family, case):
    text = written(family, case).replace(*SPELLED.get(family, ("", "")))
    assert ours(family, text) == CASES[case]
    factory = row(TOOLS, family).factory
    assert factory is not None
    found = theirs(PAIRS[family], text, [marker for marker in factory(Start()).markers if marker.isprintable()])
    assert tuple(mode for mode in found if found[mode] != CASES[case]) == DIFFERENT.get((family, case), ()), found


@pytest.mark.parametrize("case", THOUGHTS)
@pytest.mark.parametrize("family", REASONERS)
def test_the_same_reasoning(family, case):
    module = pytest.importorskip("llm_router_utils.sglang.srt.parser.reasoning_parser", reason=REASON)
    (text, specials), expected = thought(family, case), THOUGHTS[case][1]
    assert parse(family, [text], ASSISTANT) == expected
    whole = [module.ReasoningParser(REASONERS[family]).parse_non_stream(text)]
    streaming = module.ReasoningParser(REASONERS[family])
    cut = pieces(text, specials)
    streamed = [*map(streaming.parse_stream_chunk, cut), streaming.parse_stream_end()]
    found = {
        mode: tuple("".join(part[index] or "" for part in parts) for index in (0, 1))
        for mode, parts in (("whole", whole), ("streamed", streamed))
    }
    assert tuple(mode for mode in found if found[mode] != expected) == DIFFERENT_REASONING.get((family, case), ()), (
        found
    )
