"""Formats that checkpoints declare (``hf``), held to the library whose templates they are."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_parsing import parse_response

from smg.config.settings import ModelSettings
from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.choose import choose
from smg.parsing.declared.edges import Edges, head_of
from smg.parsing.declared.formats import declared
from smg.parsing.declared.template import Edge, TemplateError, load
from smg.parsing.markers import Seals
from smg.parsing.reasoning.counting import counter
from tests.parsing.declared_templates import ARRAY, HARMONY, JSON, LAX, OUTPUTS, PYTHON, XML
from tests.parsing.runs import STANDARD, Past, answer, message
from tests.splits import random_split, splits

TOOLS = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in STANDARD]


def chain(template, prompt="", *, tools=STANDARD, apart=True, seals=None, **fields) -> Chain:
    own = declared(template, "m")
    assert own is not None
    start = Start(prompt, tools=tools, seals=seals or Seals(), **fields)
    reasoning = own.reasoning.factory if apart else own.reasoning.together
    return Chain(0, start, reasoning(start), own.tools.factory(start) if tools and own.tools.factory else None)


def read(template, text, prompt="", **how):
    """The answer, which is the same however the text comes and whoever sees it."""
    whole = answer(chain(template, prompt, **how), [text])
    for chunks in splits([text], count=10, pairs_below=600):
        assert answer(chain(template, prompt, **how), chunks) == whole, chunks
        if len(chunks) != 2:
            assert message(Past(chain(template, prompt, **how)).run(chunks)) == whole
    return whole


def theirs(template, prompt, text):
    """(reasoning, content, calls), as the library tells them."""
    found = parse_response(text, copy.deepcopy(template), prefix=prompt, tools=TOOLS)
    calls = [call["function"] for call in found.get("tool_calls", [])]
    reasoning = found.get("thinking", found.get("reasoning_content", ""))
    return reasoning, found.get("content", ""), [(call["name"], call["arguments"]) for call in calls]


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_read_as_the_library_reads_them(name):
    template, prompt, text = OUTPUTS[name]
    got = read(template, text, prompt)
    assert (got.reasoning, got.content, got.read()) == theirs(template, prompt, text)
    assert got.cut == ()


@pytest.mark.parametrize("name", [name for name, (template, _, _) in OUTPUTS.items() if template in (JSON, ARRAY)])
def test_literal_markers_count_as_tokens(name):
    template, prompt, text = OUTPUTS[name]
    own = declared(template, "m")
    seals = Seals(frozenset(load(template).markers))
    assert own.sealable
    by_text, by_token = read(template, text, prompt), read(template, seals.put(text), prompt, seals=seals)
    assert by_token == by_text
    if "<tool_call>" in text:
        assert answer(chain(template, prompt, seals=seals), [text]).calls == ()


class TestReading:
    def test_nothing_is_lost_where_the_library_keeps_the_last(self):
        text = 'one <tool_call>{"name": "ping", "arguments": {}}</tool_call> two<think>a</think>three<think>b</think>'
        got = read(JSON, text)
        assert (got.reasoning, got.content, got.read()) == ("ab", "one  twothree", [("ping", {})])

    def test_text_outside_of_all_fields_is_content(self):
        text = "Sorry, <|channel|>analysis<|message|>hm<|end|><|start|>assistant I forgot.<|start|>assistant"
        got = read(HARMONY, text)
        assert (got.reasoning, got.content) == ("hm", "Sorry, I forgot.")

    def test_arguments_come_while_they_are_written(self):
        for template, opener in (
            (JSON, '<tool_call>{"name": "run", "arguments": {"cmd": "'),
            (HARMONY, '<|channel|>commentary to=functions.run <|constrain|>json<|message|>{"cmd": "'),
            (ARRAY, '<|START_ACTION|>[{"tool_name": "run", "parameters": {"cmd": "'),
        ):
            past = Past(chain(template))
            past.run([opener, *"echo 12345678901234567890"], "length")
            assert past.passed["arguments"] > 15

    def test_answers_go_past_the_parsers(self):
        for template in (JSON, XML):
            past = Past(chain(template))
            past.run([*"<think>one two</think>three four"])
            assert (past.passed["reasoning"], past.passed["text"]) == (len("ne two"), len("hree four"))

    @pytest.mark.parametrize(
        ("template", "text"),
        [
            (JSON, "<tool_call>no json</tool_call> and"),
            (JSON, '<tool_call>{"arguments": {}}</tool_call>'),
            (XML, "<tool_call>\n<func"),
            (PYTHON, "<|tool_call_start|>[nothing]<|tool_call_end|>so"),
            (LAX, "<|tool_call>call:run{cmd:<tool_call|>"),
        ],
    )
    def test_what_is_no_call_is_text_with_its_markers(self, template, text):
        got = read(template, text)
        assert (got.content, got.calls) == (text, ())

    def test_a_call_without_its_end_is_a_call(self):
        got = read(JSON, '<tool_call>{"name": "ping", "arguments": {}} then')
        assert (got.read(), got.content) == ([("ping", {})], " then")
        assert read(XML, "<tool_call><function=ping>").read() == [("ping", {})]

    def test_a_cut_output_closes_nothing(self):
        text = '<tool_call>{"name": "run", "arguments": {"cmd": "ls'
        for chunks in splits([text]):
            got = answer(chain(JSON), chunks, "length")
            assert (got.calls, got.finish, got.cut) == ((("run", '{"cmd": "ls'),), "length", (0,))
        unread = "<tool_call><function=run><parameter=cmd>ls"
        got = answer(chain(XML), [unread], "length")
        assert (got.calls, got.content) == ((), unread)

    def test_types_come_from_the_schema(self):
        text = "<tool_call><function=NAME><parameter=city>1.50</parameter><parameter=days>7</parameter></tool_call>"
        assert read(XML, text.replace("NAME", "get_weather")).read() == [("get_weather", {"city": "1.50", "days": 7})]
        assert read(XML, text.replace("NAME", "other")).read() == [("other", {"city": 1.5, "days": 7})]

    def test_the_same_tag_again(self):
        template = copy.deepcopy(XML)
        text = "<tool_call><function=f>" + "<parameter=a>1</parameter>" * 3 + "</tool_call>"
        assert read(template, text).read() == [("f", {"a": 1})]
        template["fields"]["tool_calls"]["content_args"]["merge_duplicates"] = True
        assert read(template, text).read() == [("f", {"a": [1, 1, 1]})]

    def test_repeated_fields_are_joined(self):
        template = copy.deepcopy(HARMONY)
        template["fields"]["thinking"] |= {"repeats": True, "join": "\n"}
        text = "<|channel|>analysis<|message|>a<|end|>" * 2
        assert read(template, text).reasoning == "a\na" == theirs(template, "", text)[0]
        template["fields"]["thinking"]["content_args"] = {"strip": False}
        text = "<|channel|>analysis<|message|> ab <|end|>" * 2
        assert read(template, text).reasoning == " ab \n ab " == theirs(template, "", text)[0]

    def test_without_tools_calls_stay_text_and_so_does_reasoning_that_is_not_wanted_apart(self):
        text = '<think>a</think>b<tool_call>{"name": "ping"}</tool_call>'
        assert read(JSON, text, tools=()).content == 'b<tool_call>{"name": "ping"}</tool_call>'
        got = read(JSON, text, apart=False)
        assert (got.reasoning, got.content, got.read()) == ("", "<think>a</think>b", [("ping", {})])

    def test_an_expression_that_takes_too_long_costs_the_parsing_and_no_text(self):
        template = copy.deepcopy(JSON)
        template["fields"]["thinking"] = {"open_pattern": "(?:a|aa)+b", "close": "</think>"}
        failed = []
        text = "a" * 60
        got = answer(chain(template, failed=failed.append), [text])
        assert (got.content, failed) == (text, ["reasoning"])


class TestEdges:
    @pytest.mark.parametrize(
        ("pattern", "head"),
        [
            (r"<tool_call>\s*<function=(?P<name>\w+)>", "<tool_call>"),
            (r"<\|channel\|>commentary to=", "<|channel|>commentary to="),
            (r"<\|channel>thought\n?", "<|channel>thought"),
            (r"\s*</think>", ""),
            ("ab*", "a"),
            ("<a>|<b>", ""),
            ("<a>(?:x|y)", "<a>"),
            ("<a>[|]", "<a>"),
        ],
    )
    def test_heads_of_expressions(self, pattern, head):
        assert head_of(pattern) == head

    def test_a_match_that_may_still_grow_is_waited_for(self):
        edge = Edge(pattern="<a>x*")
        edges = Edges([edge], Seals())
        assert edges.find("t<a>xx", 0, False) == (1, 6, None, {})
        assert edges.find("t<a>xxy", 0, False) == (1, 6, edge, {})
        assert edges.find("t<a>xx", 0, True) == (1, 6, edge, {})


class TestLoading:
    @pytest.mark.parametrize(
        "given",
        [
            "text",
            {"fields": {}},
            {"start_anchor": "a", "fields": {"a": {"opens": "x"}}},
            {"start_anchor": "a", "fields": {"a": {"content": "toml"}}},
            {"start_anchor": "a", "fields": {"a": {}, "b": {}}},
            {"start_anchor": "a", "fields": {"a": {"open": "x", "open_pattern": "y"}}},
            {"start_anchor": "a", "fields": {"a": {"open": []}}},
            {"start_anchor": "a", "fields": {"a": {"open": "x", "content": "xml-inline"}}},
            {"start_anchor": "a", "fields": {"a": {"open": "x", "transform": {"b": "no {content}"}}}},
            {"start_anchor": "a", "version": 2, "fields": {"a": {}}},
            {"fields": {"a": {}}},
        ],
    )
    def test_what_has_another_form_is_refused(self, given):
        with pytest.raises(TemplateError):
            load(given)

    @pytest.mark.parametrize("given", [{"fields": {}}, {"start_anchor": "a", "fields": {"a": {"open_pattern": "("}}}])
    def test_such_a_model_is_served_without(self, given, caplog):
        assert declared(given, "m") is None
        assert "response template of m is not used" in caplog.text

    def test_expressions_need_their_package(self, monkeypatch, caplog):
        def missing(name):
            raise ImportError(name)

        monkeypatch.setattr("smg.parsing.declared.edges.import_module", missing)
        given = {"start_anchor": "a", "fields": {"thinking": {"open_pattern": "needs a package", "close": "b"}}}
        assert declared(given, "m") is None
        assert "smg-server[hf]" in caplog.text


class TestChoosing:
    def test_where_nothing_else_tells_the_formats(self):
        found = choose(ModelSettings(), "new-model", response_template=JSON)
        assert (found.reasoning.name, found.tools.name) == ("hf", "hf")
        assert choose(ModelSettings(), "new-model").tools.name == "passthrough"

    def test_a_name_says_less_than_what_the_checkpoint_declares(self):
        assert choose(ModelSettings(), "qwen3", response_template=JSON).tools.name == "hf"

    def test_a_family_that_the_chat_template_shows_has_a_parser_of_its_own(self):
        found = choose(ModelSettings(), "m", "[TOOL_CALLS]", response_template=JSON)
        assert found.tools.name == "mistral"

    def test_settings_come_first(self):
        both = ModelSettings(reasoning_parser="hf", tool_call_parser="hf")
        assert choose(both, "m", "[TOOL_CALLS]", response_template=JSON).tools.name == "hf"
        one = choose(ModelSettings(tool_call_parser="qwen"), "deepseek-r1", response_template=JSON)
        assert (one.reasoning.name, one.tools.name) == ("deepseek_r1", "qwen")

    def test_asked_for_and_not_there(self, caplog):
        found = choose(ModelSettings(tool_call_parser="hf"), "m")
        assert (found.tools.factory, "no response template" in caplog.text) == (None, True)

    def test_tokens_count_where_only_literals_are_looked_for(self):
        added = {"<think>", "<tool_call>"}
        assert choose(ModelSettings(), "m", added=added, response_template=JSON).seals.texts == added
        assert choose(ModelSettings(), "m", added=added, response_template=XML).seals == Seals()

    def test_reasoning_is_counted_by_its_markers(self):
        found = choose(ModelSettings(), "m", response_template=JSON)
        count = counter(found.reasoning, Start(), {"<think>": 1, "</think>": 2}.get)
        count.take([1, 7, 8, 9, 2, 5])
        assert count.count == 3


def test_numbers_of_arguments_that_pass_keep_their_digits():
    given = '{"limit": 1.500, "big": 123456789012345678901234567890}'
    [(_, arguments)] = read(JSON, f'<tool_call>{{"name": "search", "arguments": {given}}}</tool_call>').calls
    assert arguments == given


UNITS = ["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "ping", "arguments": {', "}}", "{a:"]
UNITS += ["<function=run>", "<parameter=cmd>", "</parameter>", "<|channel|>", "commentary to=functions.run"]
UNITS += ["<|message|>", "<|call|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|tool_call>call:run", "<tool_call|>"]
UNITS += [
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "[",
    "]",
    '"',
    "\n",
    " ",
    "text",
    "<",
    "é",
    "run(cmd='x')",
    '<|"|>',
]


@pytest.mark.parametrize("name", ["two calls", "tags", "channels", "an array", "quotes of its own", "python"])
@given(st.lists(st.sampled_from(UNITS), max_size=14).map("".join), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=40, deadline=None)
def test_whatever_is_said_is_read_the_same_however_it_is_cut(name, text, generator, cut):
    template, reason = OUTPUTS[name][0], "length" if cut else "stop"
    whole = answer(chain(template), [text], reason)
    for chunks in (list(text), random_split(text, generator), random_split(text, generator)):
        assert answer(chain(template), chunks, reason) == whole
        assert message(Past(chain(template)).run(chunks, reason)) == whole
