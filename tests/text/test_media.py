"""Media parts in chat templates of both kinds (spec multimodal 2, text-pipeline 2.4)."""

import pytest

from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest, MediaPart, Message, TextPart
from smg.text.chat import Chat
from smg.text.shield import JOINER, reveal
from smg.text.tokenizer import Tokenizer
from tests.text.makers import chat_model

STRINGS = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
PARTS = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}[{{ 'PIC' }}]{% else %}{{ p.text }}{% endif %}{% endfor %}"
    "{% endif %};{% endfor %}"
)
# Special tokens of the model are taken for placeholders.
PLACEHOLDER = "<|im_end|>"
IMAGE = MediaPart("image", url="http://h/a.png")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer(chat_model(tmp_path_factory.mktemp("model")))


def render(tokenizer, template, *messages, placeholder=PLACEHOLDER):
    placeholders = {"image": placeholder} if placeholder else {}
    request = GenerationRequest("chat", "m", messages=list(messages), placeholders=placeholders)
    return Chat(template, tokenizer).render(request)


def test_parts_stay_where_they_are_among_text(tokenizer):
    content = [TextPart("a"), IMAGE, TextPart("b"), IMAGE]
    assert render(tokenizer, PARTS, Message("user", content)).prompt == "user:a[PIC]b[PIC];"


def test_a_template_of_strings_gets_placeholders_in_front_a_line_each(tokenizer):
    content = [TextPart("a"), IMAGE, TextPart("b"), IMAGE]
    rendered = render(tokenizer, STRINGS, Message("user", content))
    assert rendered.prompt == f"user:{PLACEHOLDER}\n{PLACEHOLDER}\na\nb;"
    assert rendered.tail == rendered.prompt
    assert render(tokenizer, STRINGS, Message("user", [IMAGE])).prompt == f"user:{PLACEHOLDER};"


def test_a_placeholder_that_a_client_types_is_text(tokenizer):
    rendered = render(tokenizer, STRINGS, Message("user", [TextPart(PLACEHOLDER), IMAGE]))
    assert rendered.prompt.count(PLACEHOLDER) == 1
    assert rendered.prompt.startswith(f"user:{PLACEHOLDER}\n")
    assert JOINER in rendered.prompt
    assert reveal(rendered.prompt) == f"user:{PLACEHOLDER}\n{PLACEHOLDER};"


def test_tool_results_and_system_messages_may_show_images(tokenizer):
    messages = [Message("system", [IMAGE]), Message("user", "a"), Message("tool", [TextPart("b"), IMAGE])]
    assert render(tokenizer, STRINGS, *messages).prompt == f"system:{PLACEHOLDER};user:a;tool:{PLACEHOLDER}\nb;"


def test_kinds_without_a_placeholder_are_refused_by_their_part(tokenizer):
    for template in (STRINGS, PARTS):
        for part, placeholder in ((MediaPart("video", url="http://h/v"), PLACEHOLDER), (IMAGE, None)):
            with pytest.raises(GatewayError, match=f"does not take {part.kind} input") as caught:
                render(tokenizer, template, Message("user", [TextPart("a"), part]), placeholder=placeholder)
            assert (caught.value.status, caught.value.param) == (400, "messages[0].content[1]")


def test_images_of_a_system_message_that_would_have_to_move_are_refused(tokenizer):
    only_first = (
        "{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.content }};{% endif %}{% endfor %}"
    )
    with pytest.raises(GatewayError) as caught:
        render(tokenizer, only_first, Message("user", [IMAGE]), Message("system", [IMAGE]))
    assert (caught.value.status, caught.value.param) == (400, "messages[1]")
