"""Our parsers beside vLLM's own, on outputs of many families, read whole and streamed: they agree but for what is
listed. The list is docs/parser-differences.md; one process of vLLM's Python answers for all tests."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from smg.parsing.base import Start
from smg.parsing.table import REASONING, TOOLS
from tests.parsing.peers import ASSISTANT, CASES, THOUGHTS, ours, pieces, thought, written
from tests.parsing.runs import STANDARD, parse, row

pytestmark = pytest.mark.real_vllm

# Our format by one of its names, and the name of vLLM's parser. Its Cohere parsers are no tool parsers of their own.
PAIRS = {
    "apertus": "apertus",
    "deepseek": "deepseek_v3",
    "deepseek31": "deepseek_v31",
    "deepseek32": "deepseek_v32",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v41": "deepseek_v41",
    "dots": "dots",
    "ernie45": "ernie45",
    "functiongemma": "functiongemma",
    "gemma4": "gemma4",
    "gigachat3": "gigachat3",
    "glm45_moe": "glm45",
    "glm47_moe": "glm47",
    "granite": "granite",
    "granite4": "granite4",
    "granite_20b_fc": "granite-20b-fc",
    "hunyuan_a13b": "hunyuan_a13b",
    "hy_v3": "hy_v3",
    "hy_v4": "hy_v4",
    "inkling": "inkling",
    "internlm": "internlm",
    "jamba": "jamba",
    "k2_horizon": "k2_horizon",
    "kimi_k3": "kimi_k3",
    "kimik2": "kimi_k2",
    "lfm2": "lfm2",
    "ling3": "ling3",
    "llama": "llama3_json",
    "llama4_pythonic": "llama4_pythonic",
    "longcat": "longcat",
    "mimo": "mimo",
    "minicpm5": "minicpm5",
    "minimax_m2": "minimax_m2",
    "minimax_m3": "minimax_m3",
    "mistral": "mistral",
    "muse_glimmer": "muse_glimmer",
    "olmo3": "olmo3",
    "phi4mini": "phi4_mini_json",
    "plamo3": "plamo3",
    "poolside_v1": "poolside_v1",
    "pythonic": "pythonic",
    "qwen": "hermes",
    "qwen_xml": "qwen3_coder",
    "seed_oss": "seed_oss",
    "step3": "step3",
    "step3p5": "step3p5",
    "xlam": "xlam",
}
# Tokens of the vocabulary where they are not just the parser's markers.
SPECIALS = {
    "hy_v3": [
        *("<tool_calls>", "</tool_calls>", "<tool_call>", "</tool_call>", "<tool_sep>"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ],
    # The version of the format that is a list.
    "mistral": ["[TOOL_CALLS]"],
}
BOTH, STREAMED = ("whole", "streamed"), ("streamed",)
# Where vLLM's calls are not those that were written; docs/parser-differences.md says why.
DIFFERENT = {
    ("functiongemma", "one"): BOTH,
    ("functiongemma", "two"): BOTH,
    ("functiongemma", "nested"): BOTH,
    ("gemma4", "nested"): BOTH,
    ("gigachat3", "two"): BOTH,
    ("hunyuan_a13b", "odd"): STREAMED,
    ("hunyuan_a13b", "nested"): STREAMED,
    ("internlm", "two"): BOTH,
    ("jamba", "one"): STREAMED,
    ("jamba", "two"): STREAMED,
    ("jamba", "odd"): STREAMED,
    ("jamba", "nested"): STREAMED,
    ("jamba", "unicode"): STREAMED,
    ("minimax_m2", "odd"): BOTH,
    ("minimax_m3", "nested"): BOTH,
    ("phi4mini", "one"): STREAMED,
    ("phi4mini", "two"): STREAMED,
    ("phi4mini", "odd"): BOTH,
    ("phi4mini", "nested"): BOTH,
    ("phi4mini", "unicode"): STREAMED,
    ("phi4mini", "none"): STREAMED,
    ("step3", "odd"): BOTH,
    ("step3", "nested"): BOTH,
    ("xlam", "odd"): STREAMED,
    ("xlam", "nested"): STREAMED,
}


@pytest.fixture(scope="module")
def peer():
    """Asks vLLM's parsers; one process for all questions."""
    python = Path(os.environ["SMG_REAL_VLLM"]) / "venv" / "bin" / "python"
    program = Path(__file__).with_name("parser_peer.py")
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "CRITICAL", "PYTHONPATH": ""}
    with subprocess.Popen(
        [python, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:

        def ask(question):
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def theirs(peer, family, text):
    """The calls by vLLM, of the whole output and of its tokens one by one; an error in place of either."""
    format_ = row(TOOLS, family)
    assert format_.factory is not None
    specials = SPECIALS.get(format_.name) or [one for one in format_.factory(Start()).markers if one.isprintable()]
    tools = [{"type": "function", "function": {"name": one.name, "parameters": one.parameters}} for one in STANDARD]
    cut = pieces(text, specials)
    answer = peer({"parser": PAIRS[family], "tools": tools, "specials": specials, "pieces": cut})
    return {mode: _calls(read) for mode, read in answer.items()}


def _calls(read):
    try:
        return [(name, json.loads(arguments or "{}")) for name, arguments in read["calls"]]
    except (KeyError, ValueError):
        return read


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", PAIRS)
def test_the_same_calls(peer, family, case):
    text = written(family, case)
    assert ours(family, text) == CASES[case]
    found = theirs(peer, family, text)
    assert tuple(mode for mode in found if found[mode] != CASES[case]) == DIFFERENT.get((family, case), ()), found


# Our reasoning format, and the name of vLLM's. Its parsers of Hunyuan, OLMo 3 and Poolside want the vocabularies of
# their models, and that of gpt-oss tells only where the reasoning ends.
REASONERS = {
    "deepseek_r1": "deepseek_r1",
    "deepseek_v31": "deepseek_v3",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v41": "deepseek_v41",
    "ernie45": "ernie45",
    "gemma4": "gemma4",
    "glm45": "glm45",
    "glm47": "glm47",
    "granite": "granite",
    "granite_thinking": "granite_thinking_parser",
    "holo2": "holo2",
    "hy_v3": "hy_v3",
    "hy_v4": "hy_v4",
    "inkling": "inkling",
    "k2_horizon": "k2_horizon",
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_k3",
    "ling3": "ling3",
    "minimax": "minimax_m2",
    "minimax_m3": "minimax_m3",
    "mimo": "mimo",
    "mistral": "mistral",
    "muse_glimmer": "muse_glimmer",
    "nano_v3": "nemotron_v3",
    "plamo3": "plamo3",
    "qwen3": "qwen3",
    "seed_oss": "seed_oss",
    "step3": "step3",
    "step3p5": "step3p5",
}
DIFFERENT_REASONING: dict[tuple[str, str], tuple[str, ...]] = {
    ("granite", "cut"): ("whole",),
    ("k2_horizon", "cut"): ("whole",),
    ("kimi_k3", "closed"): STREAMED,
    ("step3", "closed"): BOTH,
    ("step3", "cut"): BOTH,
}


@pytest.mark.parametrize("case", THOUGHTS)
@pytest.mark.parametrize("family", REASONERS)
def test_the_same_reasoning(peer, family, case):
    (text, specials), expected = thought(family, case), THOUGHTS[case][1]
    assert parse(family, [text], ASSISTANT) == expected
    found = peer({"reasoning": REASONERS[family], "specials": specials, "pieces": pieces(text, specials)})
    wrong = tuple(mode for mode, read in found.items() if (read.get("reasoning"), read.get("content")) != expected)
    assert wrong == DIFFERENT_REASONING.get((family, case), ()), found


def test_every_name_of_vLLM_s_is_one_of_ours(peer):
    """Who comes from vLLM keeps the flags."""
    names = peer({"names": True})
    for kind, rows in (("tools", TOOLS), ("reasoning", REASONING)):
        assert set(names[kind]) <= {name for one in rows for name in (one.name, *one.aliases)}
