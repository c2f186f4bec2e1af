"""Forced calls in each family's own form: an engine takes what the model would write, and nothing with wrong arguments;
what is written is read back by the family's parser (spec parsers 7)."""

import json

import pytest

from smg.constraints import formats
from smg.constraints.calls import _SHAPES, shape
from smg.constraints.elements import Elements
from smg.core.request import Tool
from smg.parsing.base import Start
from tests.constraints.oracle import allows
from tests.parsing.runs import Message, fold, whole_chain
from tests.parsing.runs import feed as feed_chain
from tests.parsing.writers import WRITERS

CLOSED = {"additionalProperties": False}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    **CLOSED,
}
PUT = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "opts": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], **CLOSED},
    },
    "required": ["text"],
    **CLOSED,
}
PING = {"type": "object", "properties": {}, **CLOSED}
SCHEMAS = {"get_weather": WEATHER, "put": PUT, "ping": PING}
TOOLS = tuple(Tool(name, parameters=schema) for name, schema in SCHEMAS.items())
CALLS = [
    [("get_weather", {"city": 'Oslo, "N"', "days": 3})],
    [("put", {"text": "a < b"}), ("get_weather", {"city": "東京", "days": -1})],
    [("put", {"text": "two\nlines", "opts": {"a": True}})],
    [("ping", {})],
]


def has(*tokens):
    return lambda text: text in tokens


def _python(name, values):
    """As a model may write a call in Python's notation: texts in JSON's quotes, truth values in Python's words."""
    return f"{name}(" + ", ".join(f"{key}={_json(value)}" for key, value in values.items()) + ")"


# How models write what the formats' own writers write otherwise.
OWN_WRITERS = {
    "pythonic": lambda calls: "[" + ", ".join(_python(*call) for call in calls) + "]",
    "lfm2": lambda calls: "<|tool_call_start|>[" + ", ".join(_python(*call) for call in calls) + "]<|tool_call_end|>",
    "olmo3": lambda calls: "<function_calls>" + "\n".join(_python(*call) for call in calls) + "</function_calls>",
    "sarashina": lambda calls: "<|tool_calls|>" + WRITERS["xlam"](calls),
    "muse_glimmer": lambda calls: "".join(
        f" to={name}<|message|>{WRITERS['muse_glimmer']([(name, values)])}<|eot|>" for name, values in calls
    ),
    "inkling": lambda calls: "".join(
        f'<|content_invoke_tool_json|>{{"name":"{name}","args":{_json(values)}}}<|end_message|>'
        for name, values in calls
    ),
    "gpt_oss": lambda calls: "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name}<|constrain|>json<|message|>{_json(values)}<|call|>"
        for name, values in calls
    ),
}
# Whose calls a reasoning parser splits from the rest, or reads itself.
REASONING = {"gpt_oss": "gpt_oss", "muse_glimmer": "muse_glimmer"}

# A family, the tokens its vocabulary is told apart by, and how its models write calls.
ROWS = [(name, has(), OWN_WRITERS.get(name) or WRITERS[name]) for name in (*_SHAPES, "mistral")]
ROWS += [
    (
        "mistral",
        has("[ARGS]"),
        lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{_json(values)}" for name, values in calls),
    ),
    (
        "mistral",
        has("[ARGS]", "[CALL_ID]"),
        lambda calls: "".join(
            f"[TOOL_CALLS]{name}[CALL_ID]abcdefg{n:02}[ARGS]{_json(values)}" for n, (name, values) in enumerate(calls)
        ),
    ),
]


def _json(value):
    return json.dumps(value, ensure_ascii=False)


def output(family, tokens, *, forced=True, once=False):
    found = shape(family, tokens)
    assert found is not None
    return formats.constraint(found.piece(SCHEMAS, forced=forced, once=once))


def read(family, text, tools=TOOLS):
    start = Start(prompt_tail="<|start|>assistant", tools=tools)
    chain = whole_chain(family, start, REASONING.get(family))
    events = [*feed_chain(chain, [text]), *chain.finish("stop")]
    reasoning, content, calls, finish = fold(events)
    return Message(reasoning, content, tuple(calls), finish)


@pytest.mark.parametrize(("family", "tokens", "write"), ROWS, ids=[row[0] for row in ROWS])
class TestEachFamily:
    def test_calls_are_taken_and_read_back(self, family, tokens, write):
        constraint = output(family, tokens)
        for calls in CALLS:
            text = write(calls)
            assert allows(constraint, text), text
            message = read(family, text)
            assert message.read() == calls
            assert (message.content, message.finish) == ("", "tool_calls")

    def test_what_is_no_call_of_these_tools_is_not_taken(self, family, tokens, write):
        constraint = output(family, tokens)
        for wrong in (
            "just text",
            write([("unknown", {"city": "x"})]),
            write([("get_weather", {"city": "Oslo"})]),
            write([("get_weather", {"city": "Oslo", "days": "soon"})]),
            write(CALLS[0])[:-1],
        ):
            assert not allows(constraint, wrong), wrong

    def test_one_call_only(self, family, tokens, write):
        constraint = output(family, tokens, once=True)
        assert allows(constraint, write(CALLS[0]))
        assert not allows(constraint, write(CALLS[1]))
        assert not allows(constraint, write(CALLS[0]) + " And more.")

    def test_calls_that_need_not_come(self, family, tokens, write):
        found = shape(family, tokens)
        assert found is not None
        if not found.free:
            # Nothing tells these calls from text until they are whole.
            return
        constraint = output(family, tokens, forced=False)
        assert allows(constraint, "I can do without.")
        assert allows(constraint, "Let me see. " + write(CALLS[0]))
        assert not allows(constraint, "Let me see. " + write([("get_weather", {"days": 1})]))


def test_no_shape_for_families_without_one():
    assert shape("json", has()) is None
    assert shape("passthrough", has()) is None


def test_a_prompt_that_has_begun_the_first_call():
    found = shape("functionary32", has())
    assert found is not None
    tail = "<|start_header_id|>assistant<|end_header_id|>\n\n>>>"
    for schema, once in ((found.behind(tail), False), (found.behind(""), False)):
        constraint = formats.constraint(schema.piece(SCHEMAS, forced=True, once=once))
        begun = schema is not found
        text = WRITERS["functionary32"](CALLS[1]).removeprefix(">>>" if begun else "")
        assert allows(constraint, text)
        assert not allows(constraint, ">>>" + text)
    chain = whole_chain("functionary32", Start(prompt_tail=tail, tools=TOOLS))
    events = [*feed_chain(chain, [WRITERS["functionary32"](CALLS[1]).removeprefix(">>>")]), *chain.finish("stop")]
    assert [(name, json.loads(arguments)) for name, arguments in fold(events)[2]] == CALLS[1]


def test_names_that_need_escapes_have_no_shape():
    found = shape("qwen", has())
    assert found is not None
    assert found.fits(["get_weather", "a.b-c:d/e"])
    assert not found.fits(['say "hi"'])
    assert not found.fits([""])


MANY = {"type": "object", "properties": {f"k{n}": {"type": "integer"} for n in range(20)}, **CLOSED}
ODD = {
    "type": "object",
    "properties": {
        "color": {"enum": ["red", "blue"]},
        "flag": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "list": {"type": "array", "items": {"type": "string"}},
        "inner": {"type": "object", "properties": {"a": {"type": "string"}, "n": {"$ref": "#/$defs/n"}}, **CLOSED},
    },
    "$defs": {"n": {"type": "number"}},
    **CLOSED,
}


class TestInARow:
    """Optional arguments, separators between those that are there, and values of every kind."""

    @staticmethod
    def taken(family, schema, text):
        found = shape(family, has())
        assert found is not None
        constraint = formats.constraint(found.piece({"f": schema}, forced=True, once=True))
        assert allows(constraint, text), text
        calls = read(family, text, (Tool("f", parameters=schema),)).read()
        return calls[0][1]

    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("", {}),
            ("k0=1", {"k0": 1}),
            ("k3=1, k4=-2", {"k3": 1, "k4": -2}),
        ],
    )
    def test_any_of_them_may_be_the_first(self, text, values):
        few = {**MANY, "properties": {key: {"type": "integer"} for key in ("k0", "k3", "k4")}}
        assert self.taken("pythonic", few, f"[f({text})]") == values

    def test_of_very_many_anything_goes(self):
        assert self.taken("pythonic", MANY, "[f(k19=1)]") == {"k19": 1}

    @pytest.mark.parametrize("text", ["[f(k0=1 k3=2)]", "[f(, k0=1)]", "[f(k0=1,)]"])
    def test_separators_are_where_they_belong(self, text):
        few = {**MANY, "properties": {key: {"type": "integer"} for key in ("k0", "k3")}}
        found = shape("pythonic", has())
        assert found is not None
        assert not allows(formats.constraint(found.piece({"f": few}, forced=True, once=True)), text)

    def test_values_in_Python_s_notation(self):
        text = '[f(color="red", flag=True, maybe=null, list=["a", "b"], inner={"a": "x", "n": 1.5})]'
        expected = {"color": "red", "flag": True, "maybe": None, "list": ["a", "b"], "inner": {"a": "x", "n": 1.5}}
        assert self.taken("pythonic", ODD, text) == expected

    def test_values_in_Gemma_s_notation(self):
        text = (
            '<|tool_call>call:f{color:<|"|>red<|"|>,flag:true,maybe:3,list:["a", "b"],'
            'inner:{a:<|"|>x<|"|>,n:1.5}}<tool_call|>'
        )
        expected = {"color": "red", "flag": True, "maybe": 3, "list": ["a", "b"], "inner": {"a": "x", "n": 1.5}}
        assert self.taken("gemma4", ODD, text) == expected

    def test_elements_inside_elements(self):
        space = "]<]minimax[>["
        inner = f"{space}<a>x{space}</a>{space}<n>1.5{space}</n>"
        items = "".join(f"{space}<item>{text}{space}</item>" for text in "ab")
        body = f"{space}<color>red{space}</color>{space}<list>{items}{space}</list>{space}<inner>{inner}{space}</inner>"
        call = f'{space}<tool_call>\n{space}<invoke name="f">{body}{space}</invoke>\n{space}</tool_call>'
        found = shape("minimax_m3", has())
        assert found is not None
        assert allows(formats.constraint(found.piece({"f": ODD}, forced=True, once=True)), call)
        wrong = call.replace("1.5", "much")
        assert not allows(formats.constraint(found.piece({"f": ODD}, forced=True, once=True)), wrong)


class TestElements:
    elements = Elements("<p=KEY t=TYPE s=TEXT>", "</p>")

    def test_every_value_by_its_own_schema(self):
        schema = {
            "properties": {
                "a": {"enum": ["x", "y"]},
                "b": {"$ref": "#/$defs/n"},
                "c": {"type": "boolean"},
                "d": {"const": "k"},
                "e": {"type": ["string", "null"]},
            },
            "required": ["b", "a", "c", "d", "e"],
            "$defs": {"n": {"type": "number"}},
        }
        piece = self.elements.piece(schema)
        kinds = [(each["begin"], each["content"]["type"]) for each in piece["elements"]]
        assert kinds == [
            ("<p=a t=string s=true>", "or"),
            ("<p=b t=number s=false>", "regex"),
            ("<p=c t=boolean s=false>", "regex"),
            ("<p=d t=string s=true>", "const_string"),
            ("<p=e t=string s=true>", "any_text"),
        ]

    def test_definitions_go_with_the_values_that_need_them(self):
        schema = {
            "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/n"}}, "b": {"type": "object"}},
            "required": ["a", "b"],
            "$defs": {"n": {"type": "integer"}},
        }
        first, second = self.elements.piece(schema)["elements"]
        assert first["content"]["json_schema"]["$defs"] == schema["$defs"]
        assert second["content"]["json_schema"] == {"type": "object"}

    def test_a_value_that_is_the_whole_again_is_any_value_of_its_type(self):
        schema = {"properties": {"a": {"type": "array", "items": {"$ref": "#"}}}, "required": ["a"]}
        assert self.elements.piece(schema)["content"]["json_schema"] == {"type": "array"}

    @pytest.mark.parametrize("schema", [{}, {"properties": {}}, {"properties": {"a b": {}}}])
    def test_any_text_where_nothing_is_known(self, schema):
        assert self.elements.piece(schema) == formats.ANY_TEXT

    def test_nothing_where_there_is_nothing(self):
        assert self.elements.piece({"properties": {}, "additionalProperties": False}) is None
