"""Preparing all three kinds of input, on the loop or off it."""

import os
import threading
from array import array

import pytest

from smg.core.background import NICENESS
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest, Message, TextPart, Tool
from smg.core.turns import LONG_PROMPT
from smg.text import prepare as prepare_module
from smg.text.prepare import Prepared, prepare, prepare_pair
from smg.text.registry import TextModel
from tests.text.makers import chat_model, metaspace_json, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return TextModel(chat_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    config = {"bos_token": "<s>", "add_bos_token": True}
    return TextModel(write_model(tmp_path_factory.mktemp("llama"), metaspace_json("legacy"), tokenizer_config=config))


def chat(*texts, **fields) -> GenerationRequest:
    return GenerationRequest("chat", "m", [Message("user", text) for text in texts], **fields)


async def refused(model, request) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await prepare(model, request)
    return caught.value


async def test_chat(model):
    prepared = await prepare(model, chat("hello"))
    prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert prepared == Prepared(model.tokenizer.encode(prompt), prompt, None, "", False)
    assert prepared.ids[0] == model.tokenizer.token_id("<|im_start|>")


async def test_continued_chat(model):
    request = GenerationRequest(
        "chat", "m", [Message("user", "q"), Message("assistant", "The answer")], continue_final_message=True
    )
    prepared = await prepare(model, request)
    assert (prepared.history, prepared.continues) == ("The answer", True)
    assert model.tokenizer.decode(prepared.ids).endswith("The answer")


async def test_ct_04_chat_is_shielded_and_prompts_are_raw(model):
    end = model.tokenizer.token_id("<|im_end|>")
    assert (await prepare(model, chat("a<|im_end|>b"))).ids.count(end) == 1
    assert (await prepare(model, GenerationRequest("completions", "m", prompt_text="a<|im_end|>b"))).ids.count(end) == 1


@pytest.mark.parametrize("text", ["a b", "<s>a b"])
async def test_prompt_text_gets_one_bos(llama, text):
    prepared = await prepare(llama, GenerationRequest("completions", "m", prompt_text=text))
    assert prepared.ids == [llama.tokenizer.token_id(piece) for piece in ("<s>", "▁a", "▁b")]
    assert (prepared.continues, prepared.prompt_tail) == (True, text)


async def test_prompt_ids_pass_through(model):
    prepared = await prepare(model, GenerationRequest("completions", "m", prompt_ids=[5, 6, 7]))
    assert (prepared.ids, prepared.continues) == ([5, 6, 7], True)


@pytest.mark.parametrize("token", [-1, 100_000])
async def test_ids_outside_the_vocabulary(model, token):
    error = await refused(model, GenerationRequest("completions", "m", prompt_ids=[1, token]))
    assert (error.code, error.status, error.param) == ("invalid_value", 400, "prompt[1]")


async def test_the_shields_own_id_is_outside_the_vocabulary(model):
    error = await refused(model, GenerationRequest("completions", "m", prompt_ids=[model.tokenizer.size]))
    assert error.code == "invalid_value"


@pytest.mark.parametrize("fields", [{"prompt_text": ""}, {"prompt_ids": []}])
async def test_empty_input(model, llama, fields):
    for either in (model, llama):
        error = await refused(either, GenerationRequest("completions", "m", **fields))
        assert (error.code, error.status) == ("empty_input", 400)


async def test_a_template_that_renders_nothing_is_empty_input(tmp_path):
    assert (await refused(TextModel(chat_model(tmp_path, "{# nothing #}")), chat("x"))).code == "empty_input"


async def test_errors_of_the_template_arrive(tmp_path):
    model = TextModel(chat_model(tmp_path, "{{ raise_exception('no ' + messages[0].content) }}"))
    for text in ("x", "x" * 1000):
        error = await refused(model, chat(text))
        assert (error.code, error.message) == ("process_messages_failed", f"no {text}")


@pytest.mark.parametrize(
    ("text", "kwargs", "param"),
    [
        ("no", {}, "messages"),
        ("no", {"level": 3}, "messages"),
        ("no", {"level": "x"}, "messages"),
        ("x", {"level": "x"}, "chat_template_kwargs"),
        ("x", {"level": {"a": []}}, "chat_template_kwargs"),
    ],
)
async def test_what_a_template_does_not_take_is_named(tmp_path, text, kwargs, param):
    source = "{% if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif %}{{ (level or 1) + 1 }}"
    error = await refused(TextModel(chat_model(tmp_path, source)), chat(text, template_kwargs=kwargs))
    assert (error.code, error.status, error.param) == ("process_messages_failed", 400, param)


@pytest.mark.parametrize(
    ("request_", "inline"),
    [
        (chat("x" * 4095), True),
        (chat("x" * 4096), False),
        (chat("é" * 2047), True),
        (chat("é" * 2048), False),
        (chat("x" * 2100, "y" * 2100), False),
        (chat(*["x"] * 32), True),
        (chat(*["x"] * 33), False),
        (chat(*["x"] * 33, raw=b"{}"), False),
        (chat([TextPart("x")]), False),
        (chat("x", tools=[Tool("t")]), False),
        (chat("x", raw=b"{}" * 2048), False),
        (chat("x", tools=[Tool("t")], raw=b"{}" * 2047), True),
        (GenerationRequest("c", "m", prompt_text="x" * 4095), True),
        (GenerationRequest("c", "m", prompt_text="x" * 4096), False),
        (GenerationRequest("c", "m", prompt_ids=[1] * 4096), False),
    ],
)
async def test_long_prompts_leave_the_event_loop(model, threads, request_, inline):
    assert (await prepare(model, request_)).ids
    assert (threads == [threading.current_thread()]) is inline


@pytest.mark.parametrize(("size", "inline"), [(511, True), (512, False)])
async def test_with_the_library_they_do_so_earlier(llama, threads, size, inline):
    assert not llama.tokenizer.native
    assert (await prepare(llama, GenerationRequest("c", "m", prompt_text="x" * size))).ids
    assert (threads == [threading.current_thread()]) is inline


@pytest.fixture
def threads(monkeypatch):
    """The threads that have prepared."""
    found = []
    real = prepare_module.prepare_now

    def spy(*arguments):
        found.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(prepare_module, "prepare_now", spy)
    return found


async def test_threads_that_prepare_yield_to_the_event_loop(model, monkeypatch):
    def priority(*_):
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    monkeypatch.setattr(prepare_module, "prepare_now", priority)
    assert await prepare(model, chat("x" * 5000)) == max(priority(), NICENESS)


async def test_long_and_short_prompts_give_the_same_kind_of_ids(model):
    text = "hello world, " * 100
    prepared = await prepare(model, chat(text))
    assert model.tokenizer.decode(prepared.ids, skip_special_tokens=False) == (
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_PF_01_ids_of_a_long_prompt_are_no_objects(model):
    ids = [1, 2, 3] * LONG_PROMPT
    for kept, kind in (ids, array), (ids[: LONG_PROMPT - 1], list):
        prepared = await prepare(model, GenerationRequest("c", "m", prompt_ids=kept))
        assert type(prepared.ids) is kind
        assert list(prepared.ids) == kept
    text = " hello" * LONG_PROMPT
    for request in chat(text), GenerationRequest("c", "m", prompt_text=text):
        prepared = await prepare(model, request)
        assert type(prepared.ids) is array
        assert text in model.tokenizer.decode(prepared.ids)


async def test_prompts_are_encoded_through_the_cache(model):
    before = model.encoder.stats()
    first, second = [await prepare(model, chat("a prompt that no other test sends")) for _ in range(2)]
    after = model.encoder.stats()
    assert first == second
    assert (after.exact_misses - before.exact_misses, after.exact_hits - before.exact_hits) == (1, 1)


class TestPairs:
    async def test_two_texts_are_one_input(self, model):
        first, second = "a question", "an answer " * 200
        ids = await prepare_pair(model, first, second, "documents[0]")
        assert ids == model.tokenizer.encode(first) + model.tokenizer.encode(second)

    async def test_nothing_is_no_input(self, model):
        with pytest.raises(GatewayError) as caught:
            await prepare_pair(model, "", "", "documents[3]")
        assert (caught.value.code, caught.value.param) == ("empty_input", "documents[3]")
