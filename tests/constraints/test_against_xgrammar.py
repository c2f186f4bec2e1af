"""Every family's structural tag, compiled by the library that engines compile it with (docs/structured-output.md)."""

import pytest

from smg.constraints import formats
from smg.constraints.calls import shape
from smg.constraints.lead import Lead
from smg.core.request import Constraint
from tests.constraints.test_calls import CALLS, ROWS, SCHEMAS

pytestmark = pytest.mark.full

LEADS = (None, Lead("</think>"), Lead("</think>", "<think>"))


def accepts(constraint: Constraint, text: str) -> bool:
    reason = "needs xgrammar, which needs torch (docs/structured-output.md)"
    xgrammar = pytest.importorskip("xgrammar", reason=reason, exc_type=ImportError)
    testing = pytest.importorskip("xgrammar.testing", reason=reason, exc_type=ImportError)
    grammar = xgrammar.Grammar.from_structural_tag(constraint.value)
    return bool(testing._is_grammar_accept_string(grammar, text))


@pytest.mark.parametrize("first", LEADS, ids=str)
@pytest.mark.parametrize(("family", "tokens", "write"), ROWS, ids=[row[0] for row in ROWS])
def test_it_takes_what_models_write(family, tokens, write, first):
    found = shape(family, tokens)
    assert found is not None
    said = "" if first is None else f"{first.opener}Let me think: {{1}}.{first.closer}"

    def output(**how):
        piece = found.piece(SCHEMAS, **how)
        return formats.constraint(piece if first is None else first.before(piece))

    forced, once, free = (
        output(forced=True, once=False),
        output(forced=True, once=True),
        output(forced=False, once=False),
    )
    for calls in CALLS:
        assert accepts(forced, said + write(calls))
    wrong = write([("get_weather", {"city": "Oslo"})])
    assert not accepts(forced, said + "text")
    assert not accepts(forced, said + wrong)
    assert accepts(once, said + write(CALLS[0]))
    assert not accepts(once, said + write(CALLS[1]))
    if not found.free:
        return
    assert accepts(free, said + "Well. " + write(CALLS[0]))
    assert accepts(free, said + "Well.")
    assert not accepts(free, said + "Well. " + wrong)


@pytest.mark.parametrize(
    ("wish", "good"),
    [
        (Constraint("json_schema", '{"type":"object","properties":{"x":{"type":"integer"}}}'), '{"x": 1}'),
        (Constraint("json_object"), '{"a": [1]}'),
        (Constraint("regex", "a+"), "aa"),
        (Constraint("grammar", 'root ::= "a"'), "a"),
        (Constraint("choice", choices=("yes", "no")), "no"),
    ],
)
def test_SO_03_an_answer_or_a_call(wish, good):
    found, text = shape("qwen", lambda token: False), formats.piece_of(wish)
    assert found is not None
    assert text is not None
    either = formats.constraint(formats.either(text, found.piece(SCHEMAS, forced=True, once=False)))
    assert accepts(either, good)
    assert accepts(either, '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>')
    assert not accepts(either, "something else")
