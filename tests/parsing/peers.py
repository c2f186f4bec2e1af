"""What our parsers and engines' own are held against each other on: outputs of many families, and what is in them."""

import json
from typing import Any

from smg.parsing.base import Start
from tests.parsing.runs import STANDARD, feed, fold, whole_chain
from tests.parsing.writers import WRITERS

CASES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "one": [("get_weather", {"city": "Oslo", "days": 3})],
    "two": [("get_weather", {"city": "Oslo", "days": 3}), ("ping", {})],
    "odd": [("run", {"cmd": 'echo "a" && b < c\nnext ]}'})],
    "nested": [("search", {"query": "x", "limit": 2.5, "filters": {"a": [1, {"b": None}]}, "tags": ["t", "u"]})],
    "unicode": [("run", {"cmd": "東京🙂"})],
    "none": [("ping", {})],
}


def written(family: str, case: str) -> str:
    """The output of a model of ``family``."""
    if family != "muse_glimmer":
        return WRITERS[family](CASES[case])
    # Its calls are messages of their own.
    return "".join(f" to={name}<|message|>{WRITERS[family]([(name, values)])}<|eot|>" for name, values in CASES[case])


def ours(family: str, text: str) -> list[tuple[str, Any]]:
    """The calls that our parser finds in ``text``."""
    start = Start(prompt_tail="<|start|>assistant", tools=STANDARD)
    chain = whole_chain(family, start, "muse_glimmer" if family == "muse_glimmer" else None)
    _, _, calls, _ = fold([*feed(chain, [text]), *chain.finish("stop")])
    return [(name, json.loads(arguments)) for name, arguments in calls]
