"""An encoder that wants to know what went direct is told every character of it, once, before what follows."""

import msgspec
import pytest

from smg.config.settings import ModelSettings
from smg.core.errors import GatewayError
from smg.core.events import Failure, Finish, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart, Usage
from smg.core.request import StopRules, Tool
from smg.core.stream import ByteTemplate, Counter
from smg.pipeline.accumulator import Accumulator
from smg.pipeline.generation import Generation
from tests.pipeline.fakes import SETTINGS, end, text, world
from tests.pipeline.test_generation import TestDirect, context, request

SPELLED = msgspec.structs.replace(SETTINGS, model=ModelSettings(marker_match="text"))
BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)
TOOLS = (
    Tool("f", parameters={"type": "object", "properties": {"a": {"type": "string"}}}),
    Tool("sh", kind="custom"),
)
OUTPUTS = {
    "m": "just \"text\" \\ and <more>",
    "qwen3": '<think>h\n"m"</think>he<llo <tool_call>\n{"name": "f", "arguments": {"a": "x\\n<y", "b": [1]}}\n'
    '</tool_call>\n<tool_call>\n{"name": "sh", "arguments": {"input": "ls\\n\\"x\\""}}\n</tool_call>',
    "qwen3-coder": "a<tool_call>\n<function=f>\n<parameter=a>\nx\n\"y\"\n\\z\n</parameter>\n</function>\n</tool_call>",
    "qwen3-coder-next": '<tool_call>\n<function=sh>\n<parameter=input>\nls "é" \\\\n <\n\ty\n</parameter>\n'
    "</function>\n</tool_call>",
    "qwen2.5": '<tool_call>\n{"name": "sh", "arguments": '
    '{"input": "a\\u00e9 \\ud83d\\ude00 \\ud83d \\\\ \\/ \\q é\n\tz"}}\n'
    '</tool_call><tool_call>\n{"name": "sh", "arguments": {"cmd": "ls\\n"}}\n</tool_call>',
    "glm-4.5": "<think>m</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x \"y\"\n</arg_value>\n</tool_call>",
    "llama-4": '[f(a="x\\n\\"y", b=1), f(a="z")]',
    "mistral-small-3.1": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "x\\n"}}]',
}  # fmt: skip


class Recording(TestDirect.Templates):
    """Templates of nothing but the text, and what was told of it."""

    def __init__(self) -> None:
        self.counter = Counter()
        self.told: list[tuple[str, int, str]] = []

    def template(self, choice, kind="text", call=0):
        return ByteTemplate((b"", b""), ("text",))

    def written(self, choice, kind, call, text):
        self.told.append((kind, call, text))


async def run(script, model="m", *, direct=True, **fields):
    """What went to the sink, the recorder, and all events: those that were told of in their place."""
    place = world({"w1": [list(script)]}, SPELLED, model, context_length=4096)
    generation = Generation(place.services, context(), request(**({"model": model} | fields)))
    sink, recording, events = TestDirect.Sink(), Recording(), []
    try:
        await generation.start()
        if direct:
            generation.direct(sink, recording)
        async for pull in generation:
            events += [_event(*told) for told in recording.told] + pull
            recording.told.clear()
    finally:
        await generation.aclose()
    assert place.idle()
    return sink.data, events


def _event(kind, call, told):
    if kind == "arguments":
        return ToolCallDelta(0, call, told)
    return (TextDelta if kind == "text" else ReasoningDelta)(0, told)


def blocks(events):
    """Text, reasoning and calls in their order."""
    accumulator = Accumulator()
    accumulator.feed([event for event in events if not isinstance(event, Failure)])
    choice = accumulator.finish().choices[0]
    arguments = [call.arguments for call in choice.calls]
    return [(block.kind, arguments[block.call] if block.kind == "call" else block.text) for block in choice.spans]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("model", OUTPUTS)
async def test_whatever_went_direct_is_told_in_its_place(model, size):
    output = OUTPUTS[model]
    pieces = [output[at : at + size] for at in range(0, len(output), size)]
    script = [*([text(piece)] for piece in pieces), [end()]]
    data, events = await run(script, model, tools=TOOLS)
    _, tapped = await run(script, model, tools=TOOLS, direct=False)
    assert blocks(events) == blocks(tapped)
    # A call in Python's notation is kept till it is whole, and a parser begins with an event.
    kept = model == "llama-4" or (size == 1000 and model != "m")
    assert (data == b"") is kept


async def test_a_stop_string_that_is_hidden_is_not_told():
    data, events = await run([[text("ab")], [text("c##d")], [end()]], stop=StopRules(("##",)))
    assert (data, events[:2]) == (b"abc", [TextDelta(0, "abc"), Finish(0, "stop", "##")])


@pytest.mark.parametrize("model", ["m", "qwen3"])
async def test_text_that_was_held_when_the_stream_broke_is_told_before_the_failure(model):
    script = [[text("</think>a" if model == "qwen3" else "a")], [text("b")], [text("c#")], BROKEN]
    data, events = await run(script, model, stop=StopRules(("##",)))
    assert data == b"bc#" if model == "qwen3" else b"abc#"
    assert isinstance(events[-1], Failure)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "abc#"


async def test_templates_that_do_not_want_to_know_are_not_told():
    place = world({"w1": [[[text("a")], [end()]]]})
    generation = Generation(place.services, context(), request())
    await generation.start()
    assert generation.direct(TestDirect.Sink(), TestDirect.Templates())
    assert [event async for pull in generation for event in pull if not isinstance(event, Usage)] == [Finish(0, "stop")]
    await generation.aclose()


def test_blocks_keep_the_order_of_an_answer():
    events = [
        ReasoningDelta(0, "hm"),
        TextDelta(0, "a"),
        TextDelta(0, ""),
        TextDelta(0, "b"),
        ToolCallStart(0, 0, "c1", "f"),
        ToolCallDelta(0, 0, "{}"),
        ToolCallStart(0, 1, "c2", "g"),
        TextDelta(0, "c"),
        Finish(0, "stop"),
    ]
    assert blocks(events) == [("reasoning", "hm"), ("text", "ab"), ("call", "{}"), ("call", ""), ("text", "c")]
