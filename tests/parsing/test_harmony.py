"""Harmony, by rule SPLIT (spec text-pipeline 16)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.config.settings import ModelSettings
from smg.core.request import GenerationRequest, Tool, ToolChoice
from smg.core.request import Message as Message_
from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.choose import choose
from smg.parsing.harmony import ENDS, MAX_HEADER, Harmony, Together
from tests.parsing.runs import STANDARD, Message, answer
from tests.splits import splits

pytestmark = pytest.mark.usefixtures("random_splits")

TAIL = "<|start|>user<|message|>Hello<|end|><|start|>assistant"
PLAIN = Start(prompt_tail=TAIL)
TOOLS = Start(prompt_tail=TAIL, tools=STANDARD)
THINK = "<|channel|>analysis<|message|>think<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Hi"
CALL = '<|start|>assistant<|channel|>commentary to=functions.run <|constrain|>json<|message|>{"cmd": "ls"}'


def run(text: str, start: Start = PLAIN, reason: str = "stop", parser=Harmony) -> Message:
    """The answer, which must be the same however the text is cut."""
    answers = {repr(found): found for found in (_run(chunks, start, reason, parser) for chunks in splits([text]))}
    assert len(answers) == 1, list(answers)
    return next(iter(answers.values()))


def _run(chunks, start, reason, parser) -> Message:
    return answer(Chain(0, start, parser(start)), chunks, reason)


def test_reasoning_and_answer():
    assert run(THINK + FINAL) == Message("think", "Hi")
    assert run(THINK + FINAL + "<|return|>") == Message("think", "Hi")


def test_a_call_starts_with_its_name_and_keeps_its_arguments_as_generated():
    found = run(THINK + CALL + "<|call|>", TOOLS)
    assert found == Message("think", "", (("run", '{"cmd": "ls"}'),), "tool_calls")
    # The end token is a stop id, which engines do not show.
    assert run(THINK + CALL, TOOLS) == found


def test_the_recipient_may_come_before_the_channel():
    text = '<|start|>assistant to=functions.run<|channel|>commentary <|constrain|>json<|message|>{"cmd": "ls"}<|call|>'
    assert run(THINK + text, TOOLS).calls == (("run", '{"cmd": "ls"}'),)


def test_calls_are_found_on_any_channel():
    text = '<|channel|>analysis to=functions.run code<|message|>{"cmd": "ls"}<|call|>'
    assert run(text, TOOLS) == Message("", "", (("run", '{"cmd": "ls"}'),), "tool_calls")


def test_two_calls_of_the_same_function_are_two():
    found = run(THINK + CALL + "<|call|>" + CALL + "<|call|>", TOOLS)
    assert found.calls == (("run", '{"cmd": "ls"}'), ("run", '{"cmd": "ls"}'))


def test_a_call_without_arguments_has_none():
    text = "<|channel|>commentary to=functions.ping <|constrain|>json<|message|><|call|>"
    assert run(text, TOOLS).calls == (("ping", "{}"),)


def test_a_preamble_on_the_commentary_channel_is_shown():
    text = THINK + "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>" + CALL
    assert run(text, TOOLS) == Message("think", "I look.", (("run", '{"cmd": "ls"}'),), "tool_calls")


def test_messages_of_one_kind_do_not_run_into_each_other():
    more = "<|start|>assistant<|channel|>analysis<|message|>more<|end|>"
    assert run(THINK + more + FINAL) == Message("think\nmore", "Hi")


@pytest.mark.parametrize("recipient", ["python", "browser.search", "container.exec"])
def test_built_in_tools_are_reasoning(recipient):
    text = f"<|channel|>commentary to={recipient} code<|message|>x = 1<|end|>" + FINAL
    assert run(text, TOOLS) == Message("x = 1", "Hi")


def test_without_tools_a_call_is_text():
    assert run(THINK + CALL) == Message("think", '{"cmd": "ls"}')


def test_an_unknown_tool_follows_the_operators_policy():
    text = THINK + CALL.replace("functions.run", "functions.other")
    offered = Start(prompt_tail=TAIL, tools=STANDARD, unknown_tools="text")
    assert run(text, offered) == Message("think", '{"cmd": "ls"}')
    assert run(text, TOOLS).calls == (("other", '{"cmd": "ls"}'),)


def test_only_the_first_call_counts_when_calls_may_not_be_parallel():
    start = Start(prompt_tail=TAIL, tools=STANDARD, parallel=False)
    assert run(CALL + "<|call|>" + CALL, start).calls == (("run", '{"cmd": "ls"}'),)


def test_OA_05_a_call_cut_by_the_token_limit_is_marked():
    found = run(THINK + CALL.removesuffix('"}'), TOOLS, "length")
    assert found == Message("think", "", (("run", '{"cmd": "ls'),), "length", (0,))


RP_07 = [
    (
        "<|channel|>analysis??<|message|>think<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
        Message("think", "Hi"),
    ),
    (
        "<|channel|>commentary<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>",
        Message("", "", (("ping", "{}"),), "tool_calls"),
    ),
    (
        "<|channel|>analysis<|message|>a<|end|>stray text<|start|>assistant<|channel|>final<|message|>Hi<|return|>",
        Message("astray text", "Hi"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), RP_07)
def test_RP_07_broken_headers_cost_only_themselves(text, expected):
    assert run(text, TOOLS) == expected


def test_RP_07_text_without_any_header_is_shown():
    assert run("Hello, how are you?") == Message("", "Hello, how are you?")
    long = "word " * 100
    assert run(long) == Message("", long)


def test_RP_07_a_header_that_never_ends_is_shown_without_its_own_words():
    assert run("<|channel|>final Hello there<|end|>").content.strip() == "Hello there"
    assert run("<|channel|>final Hello there").content.strip() == "Hello there"
    endless = "x" * (2 * MAX_HEADER)
    assert run("<|channel|>final " + endless).content.strip() == endless


def test_RP_07_a_marker_that_makes_a_header_too_long():
    text = "x" * 90 + '<|constrain|>name="ping"> y<|return|>'
    assert run(text) == Message("", "x" * 90 + 'name="ping"> y')


def test_a_body_without_a_header_is_the_answer():
    assert run("<|message|>Hi") == Message("", "Hi")
    assert run(THINK + "<|message|>Hi") == Message("think", "Hi")


def test_a_message_whose_end_is_missing_ends_at_the_next_header():
    for header in ("<|start|>assistant<|channel|>final", "<|channel|>final"):
        assert run(f"<|channel|>analysis<|message|>think{header}<|message|>Hi") == Message("think", "Hi")


def test_white_space_between_messages_is_not_text():
    assert run(THINK + " \n" + FINAL) == Message("think", "Hi")


def test_angle_brackets_in_a_body_are_text():
    assert run("<|channel|>final<|message|>a <| b <|e <|end c") == Message("", "a <| b <|e <|end c")


@pytest.mark.parametrize(
    ("tail", "text", "expected"),
    [
        ("<|start|>assistant<|channel|>final<|message|>Dear", " Sir", Message("", " Sir")),
        ("<|start|>assistant<|channel|>analysis<|message|>so", " on<|end|>" + FINAL, Message(" on", "Hi")),
        ("<|start|>assistant<|channel|>final", "<|message|>Hi", Message("", "Hi")),
        ("no harmony at all", THINK + FINAL, Message("think", "Hi")),
    ],
)
def test_the_prompt_may_have_begun_the_message(tail, text, expected):
    assert run(text, Start(prompt_tail=tail)) == expected


def test_reasoning_that_is_not_wanted_apart_is_part_of_the_answer():
    assert run(THINK + FINAL, parser=Together) == Message("", "think\nHi")
    assert run(THINK + CALL, TOOLS, parser=Together) == Message("", "think", (("run", '{"cmd": "ls"}'),), "tool_calls")


WORDS = ["analysis", "final", "commentary", " to=functions.run", " to=python", "assistant", "json", "{}"]
SOUP = st.lists(st.sampled_from([*Harmony.markers, *WORDS, "<|", "|>", " ", "\n", "text", "é"]), max_size=30).map(
    "".join
)
BODIES = st.text(max_size=200).filter(lambda text: not any(end in text for end in (*ENDS, "<|start|>", "<|channel|>")))


@given(text=SOUP)
def test_any_soup_is_parsed_the_same_however_it_is_cut(text):
    whole = _run([text], TOOLS, "stop", Harmony)
    assert _run(list(text), TOOLS, "stop", Harmony) == whole


@given(body=BODIES)
def test_no_text_of_a_body_is_lost(body):
    assert _run(["<|channel|>final<|message|>x" + body], TOOLS, "stop", Harmony).content == "x" + body


def test_tools_of_any_name():
    start = Start(prompt_tail=TAIL, tools=(Tool("my-tool.v2", parameters={}),))
    text = "<|channel|>commentary to=functions.my-tool.v2 <|constrain|>json<|message|>{}<|call|>"
    assert run(text, start).calls == (("my-tool.v2", "{}"),)


def test_the_format_is_known_by_template_vocabulary_and_name():
    for model, template, tokens in (
        ("x", "{{ '<|start|>assistant<|channel|>final' }}", ()),
        ("x", "", ("<|constrain|>",)),
        ("openai/gpt-oss-20b", "", ()),
    ):
        parsers = choose(ModelSettings(), model, template, lambda text, tokens=tokens: 1 if text in tokens else None)
        assert (parsers.reasoning.name, parsers.tools.name) == ("gpt_oss", "gpt_oss")


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("mode", ["auto", "none"])
def test_the_format_is_parsed_whatever_the_request_wants(apart, mode):
    parsers = choose(ModelSettings(), "gpt-oss")
    request = GenerationRequest(
        dialect="chat",
        model="gpt-oss",
        messages=[Message_("user", "Hello")],
        tools=list(STANDARD),
        tool_choice=ToolChoice(mode=mode),
        separate_reasoning=apart,
    )
    found = answer(parsers.chain(request, 0, TOOLS), [THINK + CALL])
    assert found.reasoning == ("think" if apart else "")
    assert found.calls == ((("run", '{"cmd": "ls"}'),) if mode == "auto" else ())
