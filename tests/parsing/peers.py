"""What our parsers and engines' own are held against each other on: outputs of many families, and what is in them."""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from smg.parsing.base import Start
from smg.parsing.reasoning.delimiters import DelimiterFactory
from smg.parsing.table import REASONING, TOOLS
from tests.parsing.runs import STANDARD, feed, fold, row, whole_chain
from tests.parsing.writers import WRITERS

CASES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "one": [("get_weather", {"city": "Oslo", "days": 3})],
    "two": [("get_weather", {"city": "Oslo", "days": 3}), ("ping", {})],
    "odd": [("run", {"cmd": 'echo "a" && b < c\nnext ]}'})],
    "nested": [("search", {"query": "x", "limit": 2.5, "filters": {"a": [1, {"b": None}]}, "tags": ["t", "u"]})],
    "unicode": [("run", {"cmd": "東京🙂"})],
    "none": [("ping", {})],
}
_SPACED = ("｜DSML｜parameter", "｜DSML｜ parameter")
# Formats that the parser of another reads too, and what is written otherwise in them.
OTHERWISE = {
    "deepseek_v41": [("｜DSML｜tool_calls", "｜DSML｜ calls"), ("｜DSML｜invoke", "｜DSML｜ invoke"), _SPACED],
    "hy_v4": [("<tool_sep>", "")],
}


def written(family: str, case: str) -> str:
    """The output of a model of ``family``, a tool format by any of its names."""
    if family != "muse_glimmer":
        text = WRITERS[row(TOOLS, family).name](CASES[case])
        for one, other in OTHERWISE.get(family, ()):
            text = text.replace(one, other)
        return text
    # Its calls are messages of their own, and the last one ends the turn.
    calls = [f" to={name}<|message|>{WRITERS[family]([(name, values)])}" for name, values in CASES[case]]
    return "<|eom|><|start|>assistant".join(calls) + "<|eot|>"


def ours(family: str, text: str) -> list[tuple[str, Any]]:
    """The calls that our parser finds in ``text``."""
    start = msgspec.structs.replace(ASSISTANT, tools=STANDARD)
    chain = whole_chain(family, start, "muse_glimmer" if family == "muse_glimmer" else None)
    _, _, calls, _ = fold([*feed(chain, [text]), *chain.finish("stop")])
    return [(name, json.loads(arguments)) for name, arguments in calls]


# Outputs with reasoning, and what is in them: the reasoning and the answer.
THOUGHTS: dict[str, tuple[str, tuple[str, str]]] = {
    "closed": ("{opener}Let me see: a < b.{closer}The answer.", ("Let me see: a < b.", "The answer.")),
    "cut": ("{opener}Let me", ("Let me", "")),
}


# How families that write in channels or messages begin their reasoning, and their answer behind it.
CHANNELS = {
    "gpt_oss": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "inkling": ("<|content_thinking|>", "<|end_message|><|message_model|><|content_text|>"),
    "kimi_k3": ("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
    "muse_glimmer": (" to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
}
ASSISTANT = Start(prompt_tail="<|start|>assistant")


def thought(family: str, case: str) -> tuple[str, list[str]]:
    """The output of a model of the reasoning ``family``, by any of its names, and the special tokens in it."""
    if family in CHANNELS:
        opener, closer = CHANNELS[family]
        specials = re.findall(r"<\|\w+\|>", opener + closer)
    else:
        factory = row(REASONING, family).factory
        assert isinstance(factory, DelimiterFactory)
        rules = factory.rules
        opener, closer = rules.openers[0], rules.closers[0]
        # Gemma's opener is a token and a word.
        markers = (*rules.openers, *rules.closers, *rules.tools, *rules.drop)
        specials = [one for one in markers if one.isprintable() and one != "<|channel>thought"]
    return THOUGHTS[case][0].format(opener=opener, closer=closer), specials


def pieces(text: str, specials: Sequence[str]) -> list[str]:
    """``text`` as a model's tokens may cut it."""
    longest = sorted(specials, key=len, reverse=True)
    return re.findall("|".join([*map(re.escape, longest), ".{1,3}?"]), text, re.DOTALL)
