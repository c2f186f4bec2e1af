"""Every row of the table in docs/structured-output.md: what is asked for, and what engines and parsers are told."""

import json

import pytest

from smg.constraints.abilities import Abilities, KnownAbilities, abilities
from smg.constraints.plan import Output, offered, plan
from smg.core.errors import GatewayError
from smg.core.request import Constraint, GenerationRequest, Message, Tool, ToolChoice, ToolGrammar
from smg.fleet.records import FleetSnapshot, ModelRecord, WorkerRecord
from smg.parsing.base import Start
from smg.parsing.choose import Parsers
from smg.parsing.forced import Forced
from smg.parsing.table import REASONING, TOOLS
from tests.constraints.oracle import allows
from tests.parsing.runs import row

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
WISH = Constraint("json_schema", json.dumps(SCHEMA))
OTHERS = [
    Constraint("json_object"),
    Constraint("regex", "a+"),
    Constraint("choice", choices=("yes", "no")),
    Constraint("structural_tag", '{"type":"structural_tag","format":{"type":"const_string","value":"a"}}'),
]


def tool(name, strict=None, **parameters):
    schema = {"type": "object", **parameters}
    return Tool(name, None, schema, strict, raw={"function": {"name": name, "parameters": schema}})


WEATHER = tool("get_weather", properties={"city": {"type": "string"}}, required=["city"])
PING = tool("ping", properties={})
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
PINGED = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


def decide(
    wish=None,
    tools=(),
    choice=ToolChoice(),  # noqa: B008 - frozen
    *,
    family="qwen",
    thinks="qwen3",
    start=Start(),  # noqa: B008 - frozen
    able=Abilities(),  # noqa: B008 - frozen
    messages=True,
) -> Output:
    request = GenerationRequest(
        "openai_chat",
        "m",
        messages=[Message("user", "hi")] if messages else [],
        tools=list(tools),
        tool_choice=choice,
        constraint=wish,
    )
    parsers = Parsers(row(REASONING, thinks), row(TOOLS, family))
    return plan(request, parsers, start, able, lambda text: False)


REQUIRED = ToolChoice("required")
NAMED = ToolChoice("required", ("get_weather",))
OPEN = Start("…<think>\n", thinking=True)
WILL_OPEN = Start("assistant\n", thinking=True)
CLOSED = Start("<think>\n\n</think>\n\n", thinking=False)
NO_TAGS = Abilities(tags=False)


class TestWithoutTools:
    @pytest.mark.parametrize("wish", [WISH, *OTHERS])
    def test_the_constraint_is_sent_as_it_is(self, wish):
        assert decide(wish).constraint == wish

    def test_nothing_is_nothing(self):
        assert decide() == Output()
        assert decide(start=OPEN) == Output(require_reasoning=True)


class TestCallsThatMayCome:
    def test_tools_alone_bind_nothing(self):
        assert decide(tools=[WEATHER, PING]).constraint is None

    def test_none_means_no_tools(self):
        assert decide(WISH, [WEATHER], ToolChoice("none")).constraint == WISH
        assert decide(None, [tool("f", True)], ToolChoice("none")).constraint is None

    def test_strict_tools_bind_their_calls_and_nothing_else(self):
        strict = tool("get_weather", True, properties={"city": {"type": "string"}}, required=["city"])
        output = decide(None, [strict, PING])
        assert output.constraint is not None
        for text in ("No need.", CALL, f"First: {CALL}", CALL + "\n" + PINGED):
            assert allows(output.constraint, text), text
        assert not allows(output.constraint, CALL.replace('"Oslo"', "3"))
        assert allows(output.constraint, PINGED.replace("{}", '{"any": "thing"}'))
        assert output.rules.tools.keys() == {"get_weather"}

    def test_strict_tools_without_structural_tags_are_only_checked(self):
        output = decide(None, [tool("f", True)], able=NO_TAGS)
        assert output.constraint is None
        assert output.rules.tools.keys() == {"f"}

    def test_SO_03_a_call_or_an_answer_that_fits(self):
        output = decide(WISH, [WEATHER])
        assert output.constraint is not None
        assert output.constraint.kind == "structural_tag"
        assert allows(output.constraint, '{"x": 1}')
        assert allows(output.constraint, CALL)
        for text in ("free", '{"x": "no"}', '{"name": "get_weather", "arguments": {"city": "Oslo"}}'):
            assert not allows(output.constraint, text)
        assert output.ignored == ()

    @pytest.mark.parametrize("wish", OTHERS)
    def test_SO_03_any_kind_of_answer(self, wish):
        constraint = decide(wish, [WEATHER]).constraint
        assert constraint is not None
        assert allows(constraint, CALL)
        text = {"json_object": '{"a": 1}', "regex": "aaa", "choice": "no", "structural_tag": "a"}[wish.kind]
        assert allows(constraint, text)
        assert not allows(constraint, "b")

    @pytest.mark.parametrize("how", [{"able": NO_TAGS}, {"family": "json"}])
    def test_SO_03_never_the_plain_schema_which_would_forbid_calls(self, how):
        output = decide(WISH, [WEATHER], **how)
        assert output.constraint is None
        assert output.ignored == ("json_schema",)
        assert output.rules.text
        assert not output.rules.enforced

    def test_SO_03_a_model_whose_calls_nobody_reads_answers_as_without_tools(self):
        assert decide(WISH, [WEATHER], family="passthrough").constraint == WISH

    def test_parallel_calls_off(self):
        constraint = decide(WISH, [WEATHER], ToolChoice(parallel=False)).constraint
        assert constraint is not None
        assert allows(constraint, CALL)
        assert not allows(constraint, CALL + CALL)

    def test_allowed_tools_are_the_only_ones(self):
        choice = ToolChoice("auto", ("ping",))
        request = GenerationRequest("d", "m", tools=[WEATHER, PING], tool_choice=choice)
        assert offered(request) == [PING]
        constraint = decide(WISH, [WEATHER, PING], choice).constraint
        assert constraint is not None
        assert allows(constraint, PINGED)
        assert not allows(constraint, CALL)


class TestForcedCalls:
    def test_in_the_model_s_own_form(self):
        output = decide(None, [WEATHER, PING], REQUIRED)
        assert output.constraint is not None
        assert isinstance(output.tools, Forced)
        assert output.tools.named is None
        for text in (CALL, PINGED, f"{CALL}\n{PINGED}"):
            assert allows(output.constraint, text)
        for text in ("text", "", CALL.replace("city", "town"), PINGED.replace("{}", '{"a": 1}')):
            assert not allows(output.constraint, text)

    def test_one_tool_only(self):
        output = decide(None, [WEATHER, PING], NAMED)
        assert output.constraint is not None
        assert isinstance(output.tools, Forced)
        assert output.tools.named == WEATHER
        assert allows(output.constraint, CALL)
        assert not allows(output.constraint, PINGED)
        assert not allows(output.constraint, CALL + CALL)

    def test_parallel_calls_off(self):
        constraint = decide(None, [WEATHER, PING], ToolChoice("required", parallel=False)).constraint
        assert constraint is not None
        assert allows(constraint, PINGED)
        assert not allows(constraint, PINGED + PINGED)

    def test_allowed_tools_required(self):
        constraint = decide(None, [WEATHER, PING], ToolChoice("required", ("ping",))).constraint
        assert constraint is not None
        assert not allows(constraint, CALL)

    @pytest.mark.parametrize("how", [{"able": NO_TAGS}, {"family": "passthrough"}, {"family": "json"}])
    def test_as_plain_json_where_the_form_is_not_known_or_not_to_be_had(self, how):
        several = decide(None, [WEATHER, PING], REQUIRED, **how).constraint
        assert several is not None
        assert several.kind == "json_schema"
        assert allows(several, '[{"name": "get_weather", "parameters": {"city": "Oslo"}}]')
        assert allows(several, '[{"name": "ping", "parameters": {}}, {"name": "ping", "parameters": {}}]')
        for text in ("[]", '[{"name": "ping", "parameters": {"city": "Oslo"}}]', '[{"name": "f", "parameters": {}}]'):
            assert not allows(several, text)
        one = decide(None, [WEATHER, PING], NAMED, **how).constraint
        assert one is not None
        assert allows(one, '{"city": "Oslo"}')
        assert not allows(one, "{}")
        single = decide(None, [PING, WEATHER], ToolChoice("required", parallel=False), **how).constraint
        assert single is not None
        assert not allows(single, '[{"name": "ping", "parameters": {}}, {"name": "ping", "parameters": {}}]')

    def test_schemas_that_refer_to_themselves_stay_apart(self):
        def node(kind):
            value = {"type": "object", "properties": {"v": {"type": kind}, "next": {"$ref": "#/$defs/n"}}}
            return {"properties": {"head": {"$ref": "#/$defs/n"}}, "required": ["head"], "$defs": {"n": value}}

        tools = [tool("f", **node("integer")), tool("g", **node("string"))]
        constraint = decide(None, tools, REQUIRED, able=NO_TAGS).constraint
        assert constraint is not None
        assert allows(constraint, '[{"name": "f", "parameters": {"head": {"v": 1, "next": {"v": 2}}}}]')
        assert allows(constraint, '[{"name": "g", "parameters": {"head": {"v": "a"}}}]')
        assert not allows(constraint, '[{"name": "g", "parameters": {"head": {"v": 1}}}]')

    @pytest.mark.parametrize("wish", [WISH, OTHERS[0]])
    def test_a_response_format_concerns_the_text_that_a_call_has_not(self, wish):
        output = decide(wish, [WEATHER], NAMED)
        assert output.constraint == decide(None, [WEATHER], NAMED).constraint
        assert output.rules.text == ""

    @pytest.mark.parametrize("wish", OTHERS[1:])
    def test_other_constraints_contradict_it(self, wish):
        with pytest.raises(GatewayError) as caught:
            decide(wish, [WEATHER], REQUIRED)
        assert (caught.value.code, caught.value.status) == ("invalid_tool_configuration", 400)

    def test_where_no_engine_can_be_made_to(self):
        with pytest.raises(GatewayError) as caught:
            decide(None, [WEATHER], REQUIRED, able=Abilities(tags=False, schemas=False))
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "tool_choice")

    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, "itself"),
            ({"type": "not-a-type"}, "not a JSON schema"),
        ],
    )
    def test_SO_01_a_tool_s_schema_is_looked_at_too(self, parameters, words):
        bad = Tool("f", None, parameters, raw={"function": {}})
        with pytest.raises(GatewayError) as caught:
            decide(None, [PING, bad], REQUIRED)
        assert words in caught.value.message
        assert str(caught.value.param).startswith("tools[1].function.parameters")

    def test_SO_01_a_recursive_schema_that_ends_is_fine(self):
        lists = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}}]}
        finite = tool("f", properties={"a": {"$ref": "#/$defs/list"}}, **{"$defs": {"list": lists}})
        constraint = decide(None, [finite], REQUIRED, family="passthrough").constraint
        assert constraint is not None
        assert allows(constraint, '{"a": {"next": {"next": null}}}')

    @pytest.mark.parametrize(
        ("raw", "path"),
        [({}, "functions[0]."), ({"input_schema": {}}, "tools[0].input_schema"), ({"name": ""}, "tools[0].parameters")],
    )
    def test_errors_name_the_field_of_the_dialect(self, raw, path):
        with pytest.raises(GatewayError) as caught:
            decide(None, [Tool("f", None, {"type": 3}, raw=raw)], REQUIRED)
        assert str(caught.value.param).startswith(path)

    def test_a_custom_tool_is_given_its_input(self):
        free = Tool("sh", kind="custom", raw={"custom": {}})
        constraint = decide(None, [free], ToolChoice("required", ("sh",)), family="passthrough").constraint
        assert constraint is not None
        assert allows(constraint, '{"input": "ls -l"}')
        assert not allows(constraint, "{}")


class TestReasoningFirst:
    """SO-02: the constraint is for what comes behind the reasoning."""

    @pytest.mark.parametrize(
        ("wish", "tools", "choice", "answer"),
        [
            (WISH, (), ToolChoice(), '{"x": 1}'),
            (None, (WEATHER,), REQUIRED, CALL),
            (None, (WEATHER,), NAMED, CALL),
            (WISH, (WEATHER,), ToolChoice(), CALL),
        ],
    )
    def test_SO_02_reasoning_is_free(self, wish, tools, choice, answer):
        output = decide(wish, tools, choice, start=OPEN)
        assert output.constraint is not None
        assert output.from_first_token
        assert not output.require_reasoning
        assert allows(output.constraint, "Let me see: {1} or {2}.\n</think>" + answer)
        assert not allows(output.constraint, answer)
        assert not allows(output.constraint, "Let me see.</think>no")
        opened = decide(wish, tools, choice, start=WILL_OPEN).constraint
        assert opened is not None
        assert allows(opened, "<think>Let me see.</think>" + answer)
        assert not allows(opened, "Let me see.</think>" + answer)

    def test_SO_02_thinking_off(self):
        for start in (CLOSED, Start("assistant\n", thinking=False), Start("assistant\n")):
            assert decide(WISH, start=start) == Output(WISH, rules=decide(WISH).rules)

    def test_SO_02_engines_that_wait_by_themselves_get_the_constraint_alone(self):
        output = decide(WISH, start=OPEN, able=Abilities(waits=True))
        assert output.constraint == WISH
        assert output.require_reasoning
        assert not output.from_first_token

    def test_models_that_always_think(self):
        output = decide(WISH, thinks="deepseek_r1")
        assert output.constraint is not None
        assert allows(output.constraint, 'Hm.</think>{"x": 1}')

    def test_reasoning_that_stays_in_the_text_is_not_held_against_the_schema(self):
        request = GenerationRequest(
            "d", "m", messages=[Message("user", "hi")], constraint=WISH, separate_reasoning=False
        )
        parsers = Parsers(row(REASONING, "qwen3"), row(TOOLS, "qwen"))
        output = plan(request, parsers, OPEN, Abilities(), lambda text: False)
        assert output.from_first_token
        assert not output.rules

    def test_prompts_that_are_no_conversation_are_answered_at_once(self):
        assert decide(WISH, start=OPEN, messages=False).constraint == WISH


class TestAbilities:
    def worker(self, runtime="vllm", features=None, **labels):
        return WorkerRecord("w", 0, "grpc://h:1", runtime=runtime, features=features, labels=labels)

    def test_what_is_not_told_is_taken_to_be_there(self):
        assert abilities([self.worker()]) == Abilities()
        assert abilities([]) == Abilities()

    def test_each_model_s_are_worked_out_once_per_snapshot(self):
        first, second = self.worker(), self.worker("sglang")
        first.models, second.models = ["a"], ["alias"]
        snapshot = FleetSnapshot(1, [first, second])
        known = KnownAbilities()
        assert not known.of(snapshot, ModelRecord("a")).waits
        assert known.of(snapshot, ModelRecord("b", aliases=["alias"])).waits
        assert known.of(snapshot, ModelRecord("a")) is known.of(snapshot, ModelRecord("a"))
        second.models = ["a"]
        assert known.of(FleetSnapshot(2, [second]), ModelRecord("a")).waits

    def test_tags_need_all_and_schemas_some(self):
        can, cannot = frozenset({"json_schema", "structural_tag"}), frozenset({"generate"})
        both = [self.worker(features=can), self.worker(features=cannot)]
        assert abilities(both) == Abilities(tags=False, grammars=False, schemas=True)
        assert abilities(both[1:]) == Abilities(tags=False, grammars=False, schemas=False)
        assert abilities([self.worker(features=can | {"grammar"})]) == Abilities()

    def test_who_waits_for_the_end_of_the_reasoning(self):
        waiting = self.worker(constrained_decoding_start="after_reasoning")
        assert abilities([waiting]).waits
        assert abilities([self.worker("sglang")]).waits
        assert not abilities([waiting, self.worker(constrained_decoding_start="first_token")]).waits
        assert not abilities([self.worker("trtllm")]).waits


class TestGrammarsOfCustomTools:
    """A grammar that binds nothing is told, by the path of the tool's format."""

    LARK = Tool("sum", kind="custom", raw={"custom": {}}, grammar=ToolGrammar("lark", 'start: "1"'))
    REGEX = Tool("sh", kind="custom", raw={"custom": {}}, grammar=ToolGrammar("regex", "a+"))
    NAMED = ToolChoice("required", ("sum",))
    BOTH = ("tools[1].custom.format", "tools[2].custom.format")

    def test_a_named_tools_lark_grammar_binds_without_tags(self):
        output = decide(None, [PING, self.LARK], self.NAMED, able=NO_TAGS)
        assert output.constraint is not None
        assert output.constraint.kind == "grammar"
        assert allows(output.constraint, '{"input": "1"}')
        for text in ('{"input": "2"}', "1", '{"input": "1"} '):
            assert not allows(output.constraint, text)

    @pytest.mark.parametrize(
        ("wish", "choice", "how", "ignored"),
        [
            (None, ToolChoice(), {}, ()),
            (None, ToolChoice("required"), {}, ()),
            (WISH, ToolChoice(), {}, ()),
            (None, ToolChoice("none"), {"able": NO_TAGS}, ()),
            (None, ToolChoice(), {"able": NO_TAGS}, BOTH),
            (None, ToolChoice(), {"family": "json"}, BOTH),
            (WISH, ToolChoice(), {"able": NO_TAGS}, ("json_schema", *BOTH)),
            (None, ToolChoice("required"), {"able": NO_TAGS}, BOTH[:1]),
            (None, NAMED, {"able": NO_TAGS}, ()),
            (None, NAMED, {"able": Abilities(tags=False, grammars=False)}, BOTH[:1]),
            (None, ToolChoice("required", ("sh",)), {"able": NO_TAGS}, ()),
            (None, ToolChoice(), {"family": "passthrough"}, ()),
        ],
    )
    def test_what_binds_nothing_is_told(self, wish, choice, how, ignored):
        assert decide(wish, [PING, self.LARK, self.REGEX], choice, **how).ignored == ignored
