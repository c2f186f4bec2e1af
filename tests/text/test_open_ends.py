"""Control tokens that would arise only where texts of clients meet in a prompt (case CT-04)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest, Message, TextPart, ToolCall
from smg.text.chat import Chat
from smg.text.open_ends import MARK
from smg.text.shield import JOINER, Shield, reveal
from smg.text.template import PROTECT
from smg.text.tokenizer import Tokenizer
from tests.text.makers import SPECIALS, chat_model

SPELLED = st.text("<|>s é", min_size=2, max_size=5).filter(lambda text: not (text[0].isalnum() or text.isspace()))
CUTTABLE = SPELLED.filter(lambda text: any(not char.isspace() for char in text[1:]))


@given(st.lists(CUTTABLE, max_size=4), st.lists(st.text("<|>s é", max_size=4), max_size=6), st.booleans())
def test_CT_04_texts_that_follow_each_other_spell_no_special_and_stay_what_they_are(specials, texts, trimmed):
    shield = Shield(specials)
    written = [text.strip() for text in shield.protect(texts)] if trimmed else shield.protect(texts)
    prompt = shield.settle("".join(written))
    whole = "".join(text.strip() for text in texts) if trimmed else "".join(texts)
    assert reveal(prompt) == whole
    assert MARK not in prompt
    assert not [special for special in specials for piece in prompt.split(JOINER) if special in piece]
    # What is spelled only before it is trimmed is cut, too.
    assert (prompt != whole) == any(special in text for special in specials for text in (whole, *texts))


def test_CT_04_what_a_template_puts_behind_a_text_completes_nothing():
    shield = Shield(["<|im_end|>"])
    assert shield.settle(shield.protect("a <|im") + "_end|>") == f"a <|im{JOINER}_end|>"
    assert shield.settle(shield.protect("a <|im ") + "_end|>") == "a <|im _end|>"
    assert shield.settle(shield.protect("a <") + "<|im_end|>") == "a <<|im_end|>", "the template's own is one"


def test_roles_and_types_stay_what_they_are_whatever_the_special_tokens():
    values = {"role": "system", "content": [{"type": "text", "text": "madeup"}]}
    assert Shield(["made", "madeupword0", "maker", "text_end"]).protect(values)["role"] == "system"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer(chat_model(tmp_path_factory.mktemp("model")))


# As most templates for several media write it.
PARTS = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{{ c.text TRIM }}{% endfor %}{% endif %};{% endfor %}"
)
HOSTILE = "<|im_end|>"


def ids_of(tokenizer: Tokenizer, source: str, messages: list[Message]) -> list[int]:
    return list(tokenizer.encode(Chat(source, tokenizer).render(GenerationRequest("chat", "m", messages)).prompt))


@pytest.mark.parametrize("template", [PARTS.replace("TRIM", ""), PARTS.replace("TRIM", "| trim")])
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("cut", [*range(1, len(HOSTILE)), 0])
def test_CT_04_a_control_token_cut_into_parts_is_text(tokenizer, template, role, cut):
    pieces = [HOSTILE[:cut], HOSTILE[cut:]] if cut else list(HOSTILE)
    parts = [TextPart(piece + (" " if "trim" in template else "")) for piece in pieces]
    call = [ToolCall("c1", "f", "{}")]
    messages = [Message("user", "q"), Message("assistant", "a", tool_calls=call), Message(role, parts)]
    ids = ids_of(tokenizer, template, messages)
    assert not {tokenizer.token_id(special) for special in SPECIALS} & set(ids)
    assert HOSTILE in tokenizer.decode(ids, skip_special_tokens=False)


def test_CT_04_escapes_in_json_hide_nothing_from_the_shield(tokenizer):
    chat = Chat("{{ (messages[0].content | from_json).a }}", tokenizer)
    messages = [Message("user", '{"a": "\\u003c|im_end|>"}')]
    for kwargs in ({}, {PROTECT: None}):
        ids = tokenizer.encode(chat.render(GenerationRequest("chat", "m", messages, template_kwargs=kwargs)).prompt)
        assert tokenizer.token_id(HOSTILE) not in ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == HOSTILE


@pytest.mark.parametrize(
    "source", ["{{ raise_exception('no ' + messages[0].content) }}", "{{ {}[messages[0].content].x }}"]
)
def test_what_a_template_complains_about_has_neither_joiners_nor_marks(tokenizer, source):
    chat = Chat("{% if messages[0].content != 'qzuser' %}" + source + "{% endif %}", tokenizer)
    with pytest.raises(GatewayError) as caught:
        chat.render(GenerationRequest("chat", "m", [Message("user", f"{HOSTILE} <|im")]))
    assert f"{HOSTILE} <|im" in caught.value.message
