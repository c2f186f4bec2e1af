"""Families that came to engines last, each in all the ways in which its models write (spec parsers 9, 11)."""

import pytest

from smg.core.request import Tool
from smg.parsing.base import Start
from tests.parsing.runs import STANDARD, Message, call, parse
from tests.parsing.writers import WRITERS
from tests.splits import splits

pytestmark = pytest.mark.usefixtures("random_splits")

OSLO = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
CITY = ("get_weather", {"city": "Oslo"})
RUN = ("run", {"cmd": "ls"})
PING = ("ping", {})


def solar(*arguments, name="get_weather", end="<|tool_call:end|>"):
    return f"<|tool_call:start|>{name}\n" + "".join(arguments) + end


def solar_argument(key, value, end="<|tool_arg:end|>\n"):
    return f"<|tool_arg:start|>{key}<|tool_arg:value|>{value}{end}"


@pytest.mark.parametrize(
    ("family", "text", "calls", "content"),
    [
        # The schema types what has no type, and what it does not declare is text.
        ("solar_open2", solar(solar_argument("days", "3")), [("get_weather", {"days": 3})], ""),
        ("solar_open2", solar(solar_argument("free", "3")), [("get_weather", {"free": "3"})], ""),
        # Closers that the model forgot.
        (
            "solar_open2",
            solar(solar_argument("city", "Oslo", ""), solar_argument("days", "3", "")),
            [("get_weather", {"city": "Oslo", "days": 3})],
            "",
        ),
        ("solar_open2", solar(name="ping", end="") + solar(name="ping"), [PING, PING], ""),
        ("solar_open2", "Use <|tool_call:start|> for it.", [], None),
        ("telechat4", f"<tool_call>{OSLO}</tool_call>", [CITY], ""),
        ("telechat4", '<tool_call>get_weather{"city": "Oslo"}</tool_call>', [CITY], ""),
        ("telechat4", "<tool_call>\nping\n</tool_call> Done.", [PING], " Done."),
        (
            "telechat4",
            "<tool_call>run\n<param_key>cmd</param_key>\n<param_value>ls</param_value>\n</tool_call>",
            [RUN],
            "",
        ),
        ("pangu", f"<|tool_call_start|>[{OSLO}]<|tool_call_end|>", [CITY], ""),
        ("pangu", f"Well. [unused11][{OSLO}, {OSLO}][unused12]", [CITY, CITY], "Well. "),
        ("pangu", "[unused11] is a token", [], None),
        ("rwkv", f"I look.\n**Tool Call:**\n```json\n{OSLO}\n```\nDone.", [CITY], "I look.\n\nDone."),
        ("rwkv", f"<tool_call>{OSLO}</tool_call>", [CITY], ""),
        ("rwkv", f"```json\n{OSLO}\n```", [], None),
        ("qwen2_5_coder", f"<tools>\n[{OSLO}, {OSLO}]\n</tools>", [CITY, CITY], ""),
        ("qwen2_5_coder", f"<tools>\n{OSLO}\n{OSLO}\n</tools>", [CITY, CITY], ""),
        ("qwen2_5_coder", "The <tools> element has none.", [], None),
        ("step_audio_2", '<tool_call>function\nrun\n{"cmd": "ls"}\n</tool_call>', [RUN], ""),
        ("step_audio_2", "<tool_call>search the web</tool_call>", [], None),
        (
            "iquest_coder",
            "<iquestcoder_tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
            "</iquestcoder_tool_call>",
            [("get_weather", {"days": 3})],
            "",
        ),
    ],
)
def test_what_is_written(family, text, calls, content):
    for chunks in splits([text]):
        message = call(family, chunks)
        assert message.read() == calls, chunks
        assert message.content == (text if content is None else content), chunks


@pytest.mark.parametrize(
    ("reasoning", "tools", "opener"),
    [
        ("solar_open2", "solar_open2", "<|think:start|>"),
        ("longcat", "longcat", "<longcat_think>"),
        ("pangu", "pangu", "[unused16]"),
        ("iquest_coder", "iquest_coder", "<think>"),
        ("iquest", "iquest", "<think>"),
    ],
)
def test_RP_04_a_call_ends_reasoning_that_was_not_closed(reasoning, tools, opener):
    text = "I need data. " + WRITERS[tools]([CITY])
    start = Start(prompt_tail=opener + "\n", tools=STANDARD)
    for chunks in splits([text]):
        message = call(tools, chunks, start=start, reasoning=reasoning)
        assert (message.reasoning, message.content) == ("I need data. ", "")
        assert message.read() == [CITY]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("longcat", "<longcat_think>r</longcat_think>c"),
        ("solar_open2", "<|think:start|>r<|think:end|>c"),
        ("pangu", "<think>r</think>c"),
    ],
)
def test_reasoning_that_the_model_opens_itself(family, text):
    for chunks in splits([text]):
        assert parse(family, chunks, Start(prompt_tail="assistant")) == ("r", "c")


def test_a_call_that_breaks_off_closes_nothing():
    text = solar("<|tool_arg:start|>cmd<|tool_arg:value|>ls -", name="run", end="")
    for chunks in splits([text]):
        message = call("solar_open2", chunks, start=Start(tools=(Tool("run", parameters=STANDARD[2].parameters),)))
        assert message == Message(calls=(("run", '{"cmd": "ls -'),), finish="stop", cut=(0,))
