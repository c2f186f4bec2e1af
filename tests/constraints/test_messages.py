"""Constraints on models whose answers are messages with headers: Harmony and Muse (spec text-pipeline 16)."""

import json

import pytest

from smg.constraints.abilities import Abilities
from smg.constraints.plan import plan
from smg.core.request import Constraint, GenerationRequest, Message, Tool, ToolChoice
from smg.parsing.base import Start
from smg.parsing.choose import Parsers
from smg.parsing.table import REASONING, TOOLS
from tests.constraints.oracle import allows
from tests.parsing.runs import feed, fold, row

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
WISH = Constraint("json_schema", json.dumps(SCHEMA))
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", parameters=CITY, raw={"function": {}})
PROMPT = Start(prompt_tail="hi<|end|><|start|>assistant")

# How each writes its reasoning, an answer, and a call.
FORMS = {
    "gpt_oss": (
        "<|channel|>analysis<|message|>Let me {see}.<|end|><|start|>assistant",
        '<|channel|>final<|constrain|>json<|message|>{"x": 1}',
        '<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
    ),
    "muse_glimmer": (
        " to=self<|message|>Let me {see}.<|eom|><|start|>assistant",
        ' to=user<|message|>{"x": 1}',
        ' to=get_weather<|message|><atem:function_calls>\n<atem:invoke name="get_weather">\n'
        '<atem:parameter name="city">Oslo</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>',
    ),
}


def decide(family, wish=None, choice=None, tools=(), able=None):
    request = GenerationRequest(
        "openai_chat",
        "m",
        messages=[Message("user", "hi")],
        tools=list(tools),
        tool_choice=choice or ToolChoice(),
        constraint=wish,
    )
    parsers = Parsers(row(REASONING, family), row(TOOLS, family))
    output = plan(request, parsers, PROMPT, able or Abilities(waits=True), lambda text: False)
    start = Start(prompt_tail=PROMPT.prompt_tail, tools=request.tools)
    return output, parsers.chain(request, 0, start, forced=output.tools)


def read(chain, text):
    return fold([*feed(chain, [text]), *chain.finish("stop")])


@pytest.mark.parametrize("family", FORMS)
class TestEachFamily:
    def test_a_schema_is_for_the_answer_s_message(self, family):
        thought, answer, _ = FORMS[family]
        for text, reasoning in ((thought + answer, "Let me {see}."), (answer, "")):
            output, chain = decide(family, WISH)
            assert output.from_first_token, "no engine knows where this answer begins"
            assert allows(output.constraint, text)
            assert read(chain, text) == (reasoning, '{"x": 1}', [], "stop")
        assert not allows(output.constraint, '{"x": 1}')
        assert not allows(output.constraint, thought + answer.replace("1", '"a"'))

    @pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("required", ("get_weather",))])
    def test_a_forced_call(self, family, choice):
        thought, answer, call = FORMS[family]
        for text, reasoning in ((thought + call, "Let me {see}."), (call, "")):
            output, chain = decide(family, None, choice, [WEATHER])
            assert allows(output.constraint, text)
            assert read(chain, text) == (reasoning, "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")
        assert not allows(output.constraint, thought + answer)
        assert not allows(output.constraint, thought + call.replace("get_weather", "other"))

    def test_SO_03_an_answer_by_the_schema_or_a_call(self, family):
        thought, answer, call = FORMS[family]
        output, _ = decide(family, WISH, tools=[WEATHER])
        for text in (answer, call, thought + answer, thought + call):
            assert allows(output.constraint, text)
        assert not allows(output.constraint, thought + answer.replace("1", '"a"'))

    def test_without_structural_tags_the_schema_goes_as_it_is(self, family):
        output, _ = decide(family, WISH, able=Abilities(tags=False))
        assert output.constraint == WISH
