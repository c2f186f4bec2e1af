"""What is found out about a chat template: content, calls, system messages, the thinking toggle."""

import pytest

from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest, Message, ToolCall
from smg.text import call_format, content_format, system_roles, thinking, tool_place
from smg.text.call_format import CallFormat
from smg.text.content_format import ROLES, reads_parts
from smg.text.messages import Forms, to_dicts
from smg.text.system_roles import SystemRoles
from smg.text.template import compile_template
from smg.text.thinking import Toggle

LOOP = "{% for m in messages %}<{{ m.role }}>BODY{% endfor %}"
PARTS = LOOP.replace(
    "BODY",
    "{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %}",
)


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}", True),
        ("{% for m in messages %}{% for c in m['content'] %}{{ c.text }}{% endfor %}{% endfor %}", True),
        (
            "{% for m in messages %}{% set content = m.content %}{% for c in content %}{{ c }}{% endfor %}{% endfor %}",
            True,
        ),
        (
            "{% set rest = messages[1:] %}{% for m in rest %}{% for c in m.content %}{{ c }}{% endfor %}{% endfor %}",
            True,
        ),
        ("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", True),
        ("{% for m in messages %}{% if m.content|length > 1 %}{{ m.content }}{% endif %}{% endfor %}", True),
        (
            "{% macro r(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}{{ p }}{% endfor %}{% endif %}"
            "{% endmacro %}",
            True,
        ),
        ("{% for m in messages %}{% set c = m.content %}{{ c }}{% endfor %}", False),
        ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% endfor %}", False),
        ("{% for m in messages %}{% for t in m.content.split(' ') %}{{ t }}{% endfor %}{% endfor %}", False),
        ("{% for m in messages %}{{ m.content[1:] }}{% endfor %}", False),
        ("{% for m in messages %}{% for c in m.tool_calls %}{{ c }}{% endfor %}{% endfor %}", False),
        ("{% if %}", False),
    ],
)
def test_syntax_that_reads_parts(source, verdict):
    assert reads_parts(source) is verdict


def content(source):
    found = content_format.detect(compile_template(source), {})
    return found.parts, found.strings


def test_plain_templates_take_strings():
    assert content(LOOP.replace("BODY", "{{ m.content }}")) == (frozenset(), frozenset(ROLES))


def test_templates_that_take_both():
    assert content(PARTS) == (frozenset(ROLES), frozenset(ROLES))


def test_templates_that_take_only_parts():
    source = LOOP.replace("BODY", "{% for c in m.content %}{{ c['text'] }}{% endfor %}")
    assert content(source) == (frozenset(ROLES), frozenset())


def test_CT_03_a_role_whose_list_would_be_printed_whole_gets_a_string():
    source = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ m.content }}"
        "{% elif m.content is string %}{{ m.content }}"
        "{% else %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %}{% endfor %}"
    )
    assert content(source) == (frozenset(ROLES) - {"tool"}, frozenset(ROLES))
    assert content(source.replace("{{ m.content }}", "{{ m.content | tojson }}", 1))[0] == frozenset(ROLES) - {"tool"}


def test_a_length_check_alone_does_not_make_lists_welcome():
    source = LOOP.replace("BODY", "{% if m.content|length > 0 %}{{ m.content }}{% endif %}")
    assert content(source) == (frozenset(), frozenset(ROLES))


CALLS = (
    "{% for m in messages %}{% if m.tool_calls %}NULL{% for c in m.tool_calls %}{{ c.function.name }}:ARGS"
    "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
ITEMS = "{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}{% endfor %}"
EITHER = (
    "{% if c.function.arguments is string %}{{ c.function.arguments }}"
    "{% else %}{{ c.function.arguments | tojson }}{% endif %}"
)


@pytest.mark.parametrize(
    ("null", "arguments", "expected"),
    [
        ("", ITEMS, CallFormat(True, False, True)),
        ("", "{{ '```' + c.function.arguments + '```' }}", CallFormat(False, True, True)),
        ("", "{{ c.function.arguments }}", CallFormat(False, True, True)),
        ("", "{{ c.function.arguments | tojson }}", CallFormat(True, False, True)),
        ("", EITHER, CallFormat(True, True, True)),
        ("{{ m.content }}", ITEMS, CallFormat(True, False, False)),
        ("{{ m.content + '!' }}", ITEMS, CallFormat(True, False, False)),
        ("{{ m.content | tojson }}", ITEMS, CallFormat(True, False, False)),
        ("null or None {{ m.content if m.content }}", ITEMS, CallFormat(True, False, True)),
        ("null or None {{ m.content | tojson }}", ITEMS, CallFormat(True, False, False)),
        ("{{ m | tojson }}", ITEMS, CallFormat(True, False, True)),
        ("{{ raise_exception('no') if m.content is not none }}", ITEMS, CallFormat(True, False, True)),
    ],
)
def test_CT_01_arguments_and_empty_content_are_decided_per_template(null, arguments, expected):
    source = CALLS.replace("NULL", null).replace("ARGS", arguments)
    assert call_format.detect(compile_template(source), {}) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (LOOP.replace("BODY", "{{ m.content }}"), SystemRoles(False, True)),
        (LOOP.replace("BODY", "{{ m.content if m.role in ('user', 'developer') }}"), SystemRoles(True, False)),
        (LOOP.replace("BODY", "{{ m.content if m.role in ('system', 'developer') }}"), SystemRoles(True, True)),
        (LOOP.replace("BODY", "{{ m.content if m.role != 'developer' }}"), SystemRoles(False, True)),
        (
            "{% for m in messages %}"
            "{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}{% endif %}"
            "{{ m.content }}{% endfor %}",
            SystemRoles(False, False),
        ),
    ],
)
def test_CT_02_roles(source, expected):
    assert system_roles.detect(compile_template(source), {}) == expected


TOGGLES = [
    (
        "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
        Toggle("enable_thinking", True),
    ),
    (
        "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ '<think>' if thinking else '' }}",
        Toggle("thinking", False),
    ),
    (
        "{% set e = enable_thinking if enable_thinking is defined else true %}{{ '<think>' if e }}",
        Toggle("enable_thinking", True),
    ),
    ("{{ '<think>' if enable_thinking | default(false) }}", Toggle("enable_thinking", False)),
    ("{{ '<think>' if enable_thinking | default(true) }}", Toggle("enable_thinking", True)),
    ("{{ '<think>' if enable_thinking | default(true, true) }}", None),
    ("{% set ns = namespace(enable_thinking=true) %}{{ '<think>' if ns.enable_thinking }}", None),
    ("{# thinking #}<think>", None),
    ("{{ messages[0].content }}", None),
]


@pytest.mark.parametrize(("source", "expected"), TOGGLES)
def test_thinking_toggle(source, expected):
    assert thinking.detect(compile_template(source), {}) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"template_kwargs": {"enable_thinking": False}}, False),
        ({"template_kwargs": {"thinking": False}}, True),
        ({"template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, False),
        ({"reasoning_effort": "high"}, True),
        ({"thinking": False}, False),
        ({"thinking": True, "reasoning_effort": "none"}, True),
    ],
)
def test_what_the_client_says_about_thinking(fields, expected):
    request = GenerationRequest("chat", "m", **fields)
    assert thinking.resolve(Toggle("enable_thinking", True), request) is expected
    assert thinking.resolve(None, request) is None


def test_a_template_that_is_off_by_default_stays_off_until_asked():
    toggle = Toggle("thinking", False)
    assert thinking.resolve(toggle, GenerationRequest("chat", "m", reasoning_effort="high")) is False
    assert thinking.resolve(toggle, GenerationRequest("chat", "m", thinking=True)) is True


@pytest.mark.parametrize(
    ("prompt", "reasoning", "text", "expected"),
    [
        ("A:", "", "x", "x"),
        ("A:", "r", "", "<think>\nr"),
        ("A:", "r", "x", "<think>\nr\n</think>\n\nx"),
        ("A:<think>\n", "r", "x", "r\n</think>\n\nx"),
        ("A:<think>\n", "", "x", "\n</think>\n\nx"),
        ("A:<think>\n", "", "", ""),
        ("A:<think>\n\n</think>\n\n", "r", "x", "x"),
    ],
)
def test_reopening_an_assistant_turn(prompt, reasoning, text, expected):
    assert thinking.reopen(prompt, reasoning, text) == expected


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        (LOOP, False),
        ("{{ tools | tojson }}" + LOOP, True),
        ("{% for m in messages %}{% if m.role == 'system' %}{{ tools | tojson }}{% endif %}{% endfor %}", True),
        ("{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + LOOP, True),
        ("{% if tools %}You may call tools.{% endif %}" + LOOP, False),
        ("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + LOOP, False),
    ],
)
def test_whether_the_model_sees_its_tools(source, verdict):
    assert tool_place.detect(compile_template(source), {}) is verdict


@pytest.mark.parametrize(("texts", "shown"), [(True, '{"city": "Os'), (False, None)])
def test_arguments_that_were_cut_off_are_text_where_the_template_takes_text(texts, shown):
    turn = Message("assistant", tool_calls=[ToolCall("c1", "f", '{"city": "Os')])
    forms = Forms(calls=CallFormat(objects=True, texts=texts))
    if shown is not None:
        assert to_dicts([turn], forms)[0]["tool_calls"][0]["function"]["arguments"] == shown
        return
    with pytest.raises(GatewayError) as caught:
        to_dicts([turn], forms)
    assert (caught.value.status, caught.value.param) == (400, "messages[0].tool_calls[0].function.arguments")
    assert caught.value.message.endswith("leave out a call that was cut off")
