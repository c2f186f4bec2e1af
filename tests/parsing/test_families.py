"""Every tool format reads back what its models write, however the text is cut, and loses nothing around it."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg.parsing.base import Start
from smg.parsing.table import TOOLS
from tests.parsing.runs import STANDARD, Message, call
from tests.parsing.writers import WRITERS
from tests.splits import random_split, splits

FAMILIES = sorted(WRITERS)
# Without markers text may not come in front of calls (llama), or only calls of declared tools count.
LEADING = {"llama"}

GOLDEN = {
    "one": [("get_weather", {"city": "Oslo", "days": 3})],
    "no arguments": [("ping", {})],
    "several": [("ping", {}), ("get_weather", {"city": "Bergen", "days": 1}), ("ping", {}), ("run", {"cmd": "ls -l"})],
    "nested": [("search", {"query": "a", "limit": 0.5, "filters": {"k": [1, {"x": None}]}, "tags": ["b", "c"]})],
    "hard strings": [
        ("run", {"cmd": 'a < b && b > c; echo "it\'s [ok]" {x} \\n /* ] */ `y`'}),
        ("write_file", {"path": "ä/日本.txt", "text": "one\ntwo\n\n  three 😀"}),
    ],
}


def test_every_format_has_a_writer():
    assert {row.name for row in TOOLS if row.factory is not None} == set(FAMILIES)


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("family", FAMILIES)
def test_calls_are_read_as_they_were_written(family, name):
    calls = GOLDEN[name]
    text = WRITERS[family](calls)
    whole = call(family, [text])
    assert whole.read() == calls
    assert (whole.content, whole.finish, whole.cut) == ("", "tool_calls", ())
    # All cuts in two of the short ones; the rest are for the full run.
    for chunks in splits([text], pairs_below=400 if name in ("one", "no arguments") else 0):
        assert call(family, chunks) == whole, chunks


@pytest.mark.parametrize("family", FAMILIES)
def test_text_around_calls_is_kept(family):
    block = WRITERS[family](GOLDEN["one"])
    before = "" if family in LEADING else "I look it up. "
    text = f"{before}{block}\n\n{block} So."
    for chunks in splits([text], pairs_below=0):
        message = call(family, chunks)
        assert message.read() == GOLDEN["one"] * 2, chunks
        assert message.content == f"{before} So.", chunks


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "text", ["", "Just prose, with a < b and [x](y) and {z}.", "\n\n  indented\n", "1. **a**\n```py\nx[0]\n```"]
)
def test_row_1_text_without_calls_stays_as_it_is(family, text):
    for chunks in splits([text]):
        assert call(family, chunks) == Message(content=text)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_in_one_chunk_has_its_name_and_its_arguments(family):
    """Rows 67 and 68, and S1."""
    text = WRITERS[family](GOLDEN["one"])
    assert call(family, [text, ""]).read() == GOLDEN["one"]


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_first_call_counts_when_parallel_calls_are_off(family):
    text = WRITERS[family](GOLDEN["several"])
    for chunks in splits([text], pairs_below=0):
        message = call(family, chunks, start=Start(tools=STANDARD, parallel=False))
        assert message.read() == GOLDEN["several"][:1]
        assert (message.content, message.finish) == ("", "tool_calls")


@pytest.mark.parametrize("family", FAMILIES)
def test_output_that_is_cut_anywhere_loses_no_call_and_closes_none(family):
    calls = GOLDEN["one"] + GOLDEN["no arguments"]
    text = WRITERS[family](calls)
    generator = random.Random(0)
    for at in range(len(text)):
        message = call(family, [text[:at]], reason="length")
        assert message == call(family, random_split(text[:at], generator), reason="length")
        assert message.finish == "length"
        whole = [entry for number, entry in enumerate(message.calls) if number not in message.cut]
        assert [(name, json.loads(arguments)) for name, arguments in whole] == calls[: len(whole)]


_TEXTS = st.text(st.sampled_from("ab<>{}[]\"'\\/:,=&|\n é😀`"), max_size=12)
_PLAIN = st.text(st.sampled_from("abc xyz-é😀.,"), min_size=1, max_size=12).map(str.strip).filter(bool)
# Where values stand between markers without quotes, their text must not look like one, nor begin or end with space.
_UNQUOTED = {"deepseek32", "deepseek_v4", "gigachat35", "dots", "minicpm5", "step3", "kimi_k3", "minimax_m2"}
_UNQUOTED |= {
    "minimax_m3",
    "k2_horizon",
    "muse_glimmer",
    "glm45_moe",
    "glm47_moe",
    "iquest",
    "iquest_coder",
    "telechat4",
    "solar_open2",
    "hy_v3",
    "qwen_xml",
    "mimo",
    "seed_oss",
}


def arguments(text, empty=0):
    return st.one_of(
        st.tuples(st.just("ping"), st.just({})),
        st.tuples(st.just("get_weather"), st.fixed_dictionaries({"city": text, "days": st.integers()})),
        st.tuples(
            st.just("search"),
            st.fixed_dictionaries(
                {"query": text, "filters": st.dictionaries(st.just("k"), st.lists(_PLAIN, min_size=empty))}
            ),
        ),
    )


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data(), generator=st.randoms(use_true_random=False))
@settings(max_examples=6, deadline=None)
def test_random_calls_are_read_as_they_were_written(family, data, generator):
    # Gemma's quotes have no escape, but nothing else does either inside them.
    values = _PLAIN if family in _UNQUOTED else _TEXTS
    # An empty element of M3 is a list or a text, and only a schema could say which.
    calls = data.draw(st.lists(arguments(values, empty=family == "minimax_m3"), min_size=1, max_size=3))
    text = WRITERS[family](calls)
    whole = call(family, [text])
    assert (whole.read(), whole.content) == (calls, "")
    for _ in range(3):
        assert call(family, random_split(text, generator)) == whole
    assert call(family, list(text)) == whole


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_many_splits(family):
    for name, calls in GOLDEN.items():
        text = WRITERS[family](calls)
        whole = call(family, [text])
        for chunks in splits([text], seed=random.Random(name).randint(0, 1 << 20), count=200):
            assert call(family, chunks) == whole
