"""What parsers wait for, and how much of an output therefore goes past them (``core.stream.Wait``).

That the outcome is the same is shown by ``runs.call`` and ``runs.parse`` for every output of this folder.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg.core.batch import TokenLogprobs
from smg.core.stream import RowOutput, Wait
from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.markers import GAP, WORD, markers
from smg.parsing.tools.json_forms import ARRAY, OBJECT
from tests.parsing.runs import STANDARD, Past, answer, chain_of, feed, message, whole_chain
from tests.parsing.writers import WRITERS

# Calls in Python's notation are read when their bracket closes.
PYTHON = {"pythonic", "olmo3", "lfm2", "sarashina"}
# The same name again makes an array of an element and the ones before it, so each waits for what follows.
MAYBE_ARRAYS = {"minimax_m3"}
COMMAND = 'print(a < b) & go\non, <b>with</b> "quotes" and {brackets}; ' * 3


def tools(name: str, reasoning: str | None = None) -> Chain:
    return whole_chain(name, Start(tools=STANDARD), reasoning)


def told(chain: Chain, *chunks: str) -> Wait | None:
    feed(chain, chunks)
    return chain.wait()


class TestMarkers:
    def test_heads_are_how_markers_begin(self):
        legal = markers("<a>", f"<b>{GAP}<c>", f"<d>{WORD}<c>", patterns=(OBJECT, ARRAY))
        assert legal.heads == ("<a>", "<b>", "<d>", "[", "{")

    def test_there_are_none_without_markers(self):
        assert markers().heads == ()


class TestChain:
    def test_nothing_passes_until_the_answer_has_begun(self):
        chain = tools("qwen", "qwen3")
        assert (told(chain), told(chain, "\n")) == (None, None)

    def test_in_an_answer_the_markers_of_both_parsers_are_waited_for(self):
        wait = told(tools("qwen", "qwen3"), "hi")
        assert wait == Wait("text", ("<think>", "<tool_call>"))

    def test_in_reasoning_those_that_end_it(self):
        wait = told(tools("qwen", "qwen3"), "<think>hm")
        assert wait == Wait("reasoning", ("</think>", "<think>", "<tool_call>"))

    def test_nothing_passes_what_is_held(self):
        chain = tools("qwen", "qwen3")
        assert told(chain, "hi <tool") is None
        assert told(chain, "s") is not None

    def test_white_space_behind_a_call_waits_for_what_follows(self):
        chain = tools("qwen")
        assert told(chain, '<tool_call>{"name": "ping"}</tool_call>', "\n") is None
        assert told(chain, "so") == Wait("text", ("<tool_call>",))

    def test_arguments_pass_by_number_of_their_call(self):
        chain = tools("qwen")
        for number in range(2):
            wait = told(chain, '<tool_call>{"name": "run", "arguments": {"cmd": "')
            assert (wait.kind, wait.call, wait.json.in_string) == ("arguments", number, True)
            feed(chain, ['"}}</tool_call>'])

    def test_arguments_before_the_name_do_not(self):
        assert told(tools("qwen"), '<tool_call>{"arguments": {"cmd": "') is None

    def test_arguments_of_a_call_that_nobody_wants_do_not(self):
        chain = whole_chain("qwen", Start(tools=STANDARD, unknown_tools="drop"))
        assert told(chain, '<tool_call>{"name": "other", "arguments": {"cmd": "') is None

    def test_arguments_that_were_printed_as_JSON_twice_do_not(self):
        assert told(tools("qwen"), '<tool_call>{"name": "run", "arguments": "{\\"cmd\\": \\"') is None

    def test_strings_by_the_schema_pass_quoted(self):
        head = "<tool_call>\n<function=run>\n<parameter=cmd>\n"
        chain = tools("qwen_xml")
        assert told(chain, head) is None, "white space at the beginning may not count"
        wait = told(chain, "ls")
        assert (wait.kind, wait.quoted, "</parameter>" in wait.markers) == ("arguments", True, True)

    def test_values_that_get_their_type_at_the_end_are_held_by_the_row(self):
        head = "<tool_call>\n<function=get_weather>\n<parameter=days>\n"
        chain = tools("qwen_xml", "qwen3")
        wait = told(chain, head, "1")
        assert (wait.kind, "</parameter>" in wait.markers, "<think>" in wait.markers) == ("held", True, True)
        assert told(chain, "2</para") is None, "a marker that has begun is the parser's"

    @pytest.mark.parametrize(
        ("family", "head"),
        [("pythonic", "[run(cmd='a"), ("olmo3", "<function_calls>run("), ("sarashina", "[{'name': ")],
    )
    def test_calls_in_pythons_notation_are_held_up_to_their_bracket(self, family, head):
        wait = told(tools(family), head)
        assert (wait.kind, wait.python is not None) == ("held", True)

    def test_what_is_held_is_not_lost_when_the_parser_fails(self):
        """The row gives it all to the chain before the parser fails on it."""
        start = Start(tools=STANDARD)
        chain = whole_chain("pythonic", start)
        past = Past(chain)
        chain._tools.finish = lambda cut: 1 / 0
        assert message(past.run([*"[run(cmd='a"])).content == "[run(cmd='a"

    def test_entities_are_for_the_parser(self):
        chain = tools("minimax_m2")
        wait = told(chain, '<minimax:tool_call>\n<invoke name="run">\n<parameter name="cmd">a')
        assert "&" in wait.markers
        assert told(chain, "&am") is None
        assert told(chain, "p; b") == wait

    def test_what_rides_on_events_is_not_passed_by(self):
        start = Start()
        assert Chain(0, start, None, None, with_ids=True).wait() is None
        chain = chain_of("qwen3")
        chain.feed(RowOutput(0, "hi", (1,), None))
        assert chain.wait() is not None
        chain.feed(RowOutput(0, "", (2,), [TokenLogprobs(2, -1.0)]))
        assert chain.wait() is None

    def test_a_parser_that_has_failed_waits_for_nothing(self):
        class Failing:
            markers = ("<x>",)

            def feed(self, text):
                raise RuntimeError("boom")

        chain = Chain(0, Start(), None, Failing())
        assert told(chain, "a") == Wait("text")


@pytest.mark.parametrize("family", sorted(WRITERS.keys() - PYTHON - MAYBE_ARRAYS))
def test_of_a_long_argument_nearly_everything_passes(family):
    past = Past(tools(family))
    call = WRITERS[family]([("run", {"cmd": COMMAND})])
    [(name, arguments)] = message(past.run(list(call))).read()
    assert (name, arguments) == ("run", {"cmd": COMMAND})
    assert past.passed["arguments"] > 0.8 * len(COMMAND)


@pytest.mark.parametrize("family", sorted(PYTHON | MAYBE_ARRAYS))
def test_of_values_that_wait_for_what_follows_nothing_passes(family):
    past = Past(tools(family))
    past.run(list(WRITERS[family]([("run", {"cmd": "ls"})])))
    assert past.passed["arguments"] == 0


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("pythonic", f"[search(query='a (b) ]', tags={['x'] * 100!r})]"),
        ("sarashina", f"[{{'name': 'search', 'arguments': {{'tags': {['x'] * 100!r}}}}}]"),
        ("qwen_xml", f"<tool_call>\n<function=search>\n<parameter=tags>\n{['x'] * 100!r}\n</parameter>\n</function>"),
        ("minimax_m3", WRITERS["minimax_m3"]([("search", {"tags": ["x"] * 100})])),
    ],
)
def test_values_that_wait_for_their_end_cost_no_look_at_each_token(family, text):
    past = Past(tools(family))
    looks = []
    outer = past.on_output
    past.on_output = lambda row, output: (looks.append(output.text), outer(row, output))
    [(_, arguments)] = message(past.run(list(text))).read()
    assert arguments["tags"] == ["x"] * 100
    if family != "minimax_m3":  # each item is an element of its own
        assert len(looks) < 120 < len(text) / 3
    assert "".join(looks) == text


def test_harmony_passes_every_kind():
    past = Past(tools("harmony", "harmony"))
    past.run(
        [
            *"<|channel|>analysis<|message|>I think<|end|>",
            *'<|start|>assistant to=functions.run<|channel|>commentary<|message|>{"cmd": 1}<|call|>',
            *"<|start|>assistant<|channel|>final<|message|>done it<|return|>",
        ]
    )
    assert past.passed == {"text": len("one it"), "reasoning": len(" think"), "arguments": len('"cmd": 1}')}


@pytest.mark.parametrize("family", ["qwen", "qwen_xml", "minimax_m2", "json", "mistral", "kimik2", "gemma4"])
@given(feeds=st.integers(2, 30))
@settings(max_examples=10, deadline=None)
def test_however_many_tokens_come_together(family, feeds):
    text = "Well. " + WRITERS[family]([("run", {"cmd": COMMAND}), ("ping", {})]) + " Done, <b>is</b> it."
    assert message(Past(tools(family, "qwen3")).run(list(text), feeds=feeds)) == answer(tools(family, "qwen3"), [text])
