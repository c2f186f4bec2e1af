"""Events folded into an answer, and the order in which its parts came."""

from smg.core.events import (
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from smg.pipeline.accumulator import Accumulator, AnswerBlock, AnswerChoice


def folded(*events, n=1) -> list[AnswerChoice]:
    accumulator = Accumulator(n)
    accumulator.feed(events)
    return accumulator.finish().choices


def call(index: int, arguments: str) -> list:
    return [ToolCallStart(0, index, f"c{index}", "f"), ToolCallDelta(0, index, arguments), ToolCallEnd(0, index)]


def test_blocks_keep_the_order_and_the_fields_join_what_is_of_a_kind():
    (choice,) = folded(
        ReasoningDelta(0, "I "),
        ReasoningDelta(0, "see."),
        TextDelta(0, "One"),
        TextDelta(0, "."),
        *call(0, "{}"),
        *call(1, '{"a":1}'),
        ReasoningDelta(0, " Hm."),
        TextDelta(0, " Two."),
        Finish(0, "tool_calls"),
        Usage(),
    )
    assert choice.blocks == [
        AnswerBlock("reasoning", "I see."),
        AnswerBlock("text", "One."),
        AnswerBlock("call", call=0),
        AnswerBlock("call", call=1),
        AnswerBlock("reasoning", " Hm."),
        AnswerBlock("text", " Two."),
    ]
    assert (choice.text, choice.reasoning) == ("One. Two.", "I see. Hm.")
    assert [made.arguments for made in choice.calls] == ["{}", '{"a":1}']


def test_deltas_without_text_open_no_block():
    (choice,) = folded(TextDelta(0, ""), ReasoningDelta(0, ""), TextDelta(0, "", ids=(7,)), Finish(0, "stop"))
    assert (choice.blocks, choice.ids) == ([], [7])


def test_a_signature_belongs_to_the_block_that_it_follows():
    events = [
        ReasoningDelta(0, "a"),
        ReasoningDelta(0, "", "s1"),
        ReasoningDelta(0, "b", "s2"),
        TextDelta(0, "c"),
        Finish(0, "stop"),
    ]
    (choice,) = folded(*events)
    assert choice.blocks == [
        AnswerBlock("reasoning", "a", signature="s1"),
        AnswerBlock("reasoning", "b", signature="s2"),
        AnswerBlock("text", "c"),
    ]
    assert choice.signature == "s2"


def test_choices_are_folded_apart():
    first, second = folded(TextDelta(0, "a"), TextDelta(1, "b"), TextDelta(0, "c"), n=2)
    assert (first.blocks, second.blocks) == ([AnswerBlock("text", "ac")], [AnswerBlock("text", "b")])
