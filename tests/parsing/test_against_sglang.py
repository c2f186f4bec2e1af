"""Our parsers beside SGLang's own, on whole outputs of many families: they agree but for what is listed.

The list is docs/parser-differences.md. SGLang's parsers come from the package llm-router-utils, which is no dependency
of the tests; the page tells how to install it beside them.
"""

import json

import pytest

from tests.parsing.peers import CASES, ours, written
from tests.parsing.runs import STANDARD

pytestmark = pytest.mark.full

# Our family, and the name of SGLang's parser.
PAIRS = {
    "apertus": "apertus2509",
    "cohere": "cohere_command4",
    "deepseek": "deepseekv3",
    "deepseek31": "deepseekv31",
    "deepseek32": "deepseekv32",
    "deepseek_v4": "deepseekv4",
    "dots": "dots",
    "gemma4": "gemma4",
    "gigachat3": "gigachat3",
    "gigachat35": "gigachat35",
    "glm45_moe": "glm45",
    "glm47_moe": "glm47",
    "inkling": "inkling",
    "iquest": "iquest_q1",
    "kimi_k3": "kimi_k3",
    "kimik2": "kimi_k2",
    "lfm2": "lfm2",
    "llama": "llama3",
    "mimo": "mimo",
    "minicpm5": "minicpm5",
    "minimax_m2": "minimax-m2",
    "mistral": "mistral",
    "pythonic": "pythonic",
    "qwen": "qwen",
    "qwen_xml": "qwen3_coder",
    "step3": "step3",
}
# Where the calls differ; docs/parser-differences.md says who is right.
DIFFERENT = {
    ("gemma4", "nested"),
    ("gigachat3", "two"),
    ("minimax_m2", "odd"),
    ("step3", "two"),
    ("step3", "odd"),
    ("step3", "none"),
}


def theirs(name, text):
    reason = "needs llm-router-utils (docs/parser-differences.md)"
    parser = pytest.importorskip("llm_router_utils.sglang.srt.function_call.function_call_parser", reason=reason)
    protocol = pytest.importorskip("llm_router_utils.sglang.srt.entrypoints.openai.protocol", reason=reason)
    tools = [
        protocol.Tool(type="function", function=protocol.Function(name=tool.name, parameters=tool.parameters))
        for tool in STANDARD
    ]
    _, calls = parser.FunctionCallParser(tools, name).parse_non_stream(text)
    return [(call.name, json.loads(call.parameters or "{}")) for call in calls]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", PAIRS)
def test_the_same_calls(family, case):
    text = written(family, case)
    assert ours(family, text) == CASES[case]
    assert (theirs(PAIRS[family], text) != CASES[case]) is ((family, case) in DIFFERENT)
