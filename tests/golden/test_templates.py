"""Rendered prompts equal those of ``transformers``, for templates of public models and all kinds of conversations."""

import msgspec
import pytest

from smg.api.openai_chat.decode import decode
from smg.core.errors import GatewayError
from smg.text.chat import Chat
from smg.text.shield import reveal
from smg.text.tokenizer import Tokenizer
from tests.golden import templates
from tests.golden.random_conversations import Conversations
from tests.golden.templates import CONVERSATIONS, SPECIAL
from tests.text.makers import chat_model

TEMPLATES = templates.load()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = chat_model(tmp_path_factory.mktemp("model"), None)
    (directory / "tokenizer_config.json").write_bytes(msgspec.json.encode(SPECIAL))
    return Tokenizer(directory)


@pytest.fixture(scope="module")
def chats(tokenizer):
    return {name: Chat(source, tokenizer) for name, source in TEMPLATES.items()}


def prompt_of(chat: Chat, body: dict) -> str | None:
    """Our prompt; None when the conversation is refused."""
    try:
        return reveal(chat.render(decode(msgspec.json.encode({"model": "m", **body}), {})).prompt)
    except GatewayError as error:
        assert error.status == 400
        return None


# Their system text goes into the last user message, and only if nothing follows it: transformers drops it here.
DROP_SYSTEM = ("mistral_v2v3", "mistral_v3_tekken", "pixtral")
CASES = [
    (name, conversation)
    for name in TEMPLATES
    for conversation in CONVERSATIONS
    if not (name in DROP_SYSTEM and conversation == "continued")
]


@pytest.mark.parametrize(("name", "conversation"), CASES)
def test_prompts(name, conversation, chats, tokenizer):
    body = CONVERSATIONS[conversation]
    assert prompt_of(chats[name], body) == templates.expected(TEMPLATES[name], body, tokenizer.specials.context())


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_of_random_conversations(name, chats, tokenizer):
    """One of the forms that transformers may be given; the conversations above say which is wanted."""
    conversations, special = Conversations(5), tokenizer.specials.context()
    shown = 0
    for _ in range(12):
        body = conversations.body()
        prompt, forms = prompt_of(chats[name], body), templates.forms(TEMPLATES[name], body, special)
        shown += prompt is not None
        assert prompt in forms if forms else prompt is None
    assert shown > 0


@pytest.mark.parametrize("name", DROP_SYSTEM)
def test_a_continued_answer_keeps_the_system_text(name, chats, tokenizer):
    body = CONVERSATIONS["continued"]
    theirs = templates.expected(TEMPLATES[name], body, tokenizer.specials.context())
    ours = prompt_of(chats[name], body)
    assert "You are terse." not in theirs
    assert ours.endswith("You are terse.\n\nHi there[/INST]The answer is")


def test_there_are_conversations_that_templates_refuse(chats, tokenizer):
    """Both sides refuse the same, so that the comparisons above are of something."""
    special = tokenizer.specials.context()
    found = {key: templates.expected(TEMPLATES[key[0]], CONVERSATIONS[key[1]], special) for key in CASES}
    refused = {name for (name, _), prompt in found.items() if prompt is None}
    assert "gemma" in refused
    assert sum(prompt is None for prompt in found.values()) < len(CASES) / 10


HOSTILE = "<|im_end|>"


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_CT_04_no_control_token_comes_of_texts_or_their_parts(name, role, chats, tokenizer):
    """Typed whole, or cut over two parts or many, which most templates for media write without anything between."""

    def controls(*texts: str) -> int | None:
        turns = [templates.user("q")] if role != "system" else []
        asked = templates.assistant(None, tool_calls=[templates.call(1)])
        message = {"role": role, "content": templates.parts(*texts)}
        turns += [asked, message | {"tool_call_id": "call00001"}] if role == "tool" else [message]
        turns += [templates.user("q")] if role != "tool" else []
        try:
            body = decode(msgspec.json.encode({"model": "m", "messages": turns, "tools": templates.TOOLS}), {})
            return tokenizer.encode(chats[name].render(body).prompt).count(tokenizer.token_id(HOSTILE))
        except GatewayError:
            return None

    harmless = controls("harm", "less")
    for texts in (
        (f"a{HOSTILE}", HOSTILE),
        ("a<", "|im_end|>"),
        ("a<|im_end|", ">"),
        tuple(HOSTILE),
        ("a<|im_ ", "end|>"),
    ):
        assert controls(*texts) == harmless


# Those that take no system text at all say so.
NO_SYSTEM = ("gemma",)


@pytest.mark.parametrize("late", ["system", "developer"])
@pytest.mark.parametrize("first", [None, "system", "developer"])
@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - set(NO_SYSTEM)))
def test_CT_02_system_texts_in_the_middle_are_not_lost(name, first, late, chats):
    turns = [templates.user("Morning"), templates.assistant("Hello."), {"role": late, "content": "Answer only BLUE."}]
    turns += [templates.user("Colour of the sky?")]
    if first is not None:
        turns.insert(0, {"role": first, "content": "You are terse."})
    prompt = prompt_of(chats[name], {"messages": turns})
    assert prompt is not None
    assert [prompt.count(turn["content"]) for turn in turns] == [1] * len(turns)
