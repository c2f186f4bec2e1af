"""The library is loaded once, off the event loop, for what the native encoder hands over."""

import asyncio
import json
import logging
import threading

import pytest

from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest, Message, StopRules
from smg.pipeline.stops import share_out
from smg.text import lazy_library
from smg.text.lazy_library import LibraryNeeded
from smg.text.library import Library
from smg.text.mapped.file import read, write
from smg.text.mapped.make import prepare as make
from smg.text.prepare import prepare, prepare_pair
from smg.text.registry import TextModel
from smg.text.tokenizer import Tokenizer, TokenizerError
from tests.golden.families import family
from tests.text.makers import CHATML, write_model
from tests.text.mapped.models import KEY

# A character of a Unicode version that not every Python knows.
NEW = "\u1c89"


@pytest.fixture
def directory(tmp_path):
    return write_model(tmp_path / "m", family("qwen2").to_str(), tokenizer_config={"chat_template": CHATML})


@pytest.fixture
def mapped(tmp_path, directory):
    """A tokenizer that normalises, from its file."""
    made = make(directory, KEY)
    write(tmp_path / "file", made.head, made.sections)
    return Tokenizer(directory, read(tmp_path / "file", KEY))


@pytest.fixture
def loads(monkeypatch):
    """The threads that have loaded the library."""
    found: list[threading.Thread] = []

    class Noted(Library):
        def __init__(self, path):
            found.append(threading.current_thread())
            super().__init__(path)

    monkeypatch.setattr(lazy_library, "Library", Noted)
    return found


def test_once_and_with_the_reason_in_the_log(mapped, directory, loads, caplog):
    caplog.set_level(logging.INFO)
    expected = Tokenizer(directory)
    assert mapped.encode("plain e\u0301") == expected.encode("plain e\u0301")
    assert loads == []
    for text in (f"new {NEW}", "it'\u017f"):
        assert mapped.encode(text) == expected.encode(text)
    assert len(loads) == 1
    [record] = [record for record in caplog.records if record.getMessage() == "loading the tokenizers library"]
    assert "normal form" in record.reason


def test_once_from_many_threads(mapped, loads):
    threads = [threading.Thread(target=mapped.encode, args=(NEW,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1


async def test_an_event_loop_never_loads_it(mapped, loads):
    with pytest.raises(LibraryNeeded):
        mapped.encode(NEW)
    assert loads == []
    ids = await asyncio.to_thread(mapped.encode, NEW)
    assert mapped.encode(NEW) == ids


@pytest.mark.parametrize("kind", ["chat", "prompt", "pair"])
async def test_short_prompts_that_need_it_are_prepared_on_a_thread(mapped, directory, loads, kind):
    ours, theirs = TextModel(mapped), TextModel(directory)

    async def ids(model: TextModel) -> list[int] | str:
        if kind == "pair":
            try:
                return await prepare_pair(model, "a", NEW, "query")
            except GatewayError as error:
                return error.message
        if kind == "chat":
            return (await prepare(model, GenerationRequest("chat", "m", [Message("user", NEW)]))).ids
        return (await prepare(model, GenerationRequest("completions", "m", prompt_text=NEW))).ids

    assert await ids(ours) == await ids(theirs)
    assert [thread is threading.main_thread() for thread in loads] == [False]


async def test_a_stop_string_that_needs_it_is_looked_for_as_text(mapped, loads):
    stops = share_out(StopRules(strings=(NEW, "a")), [], mapped)
    assert stops.strings == {mapped.token_id("a"): "a"}
    assert loads == []


@pytest.mark.parametrize("change", ["other", "gone"])
def test_files_that_have_changed_since_are_not_mixed_with_the_prepared_ones(mapped, directory, change):
    if change == "gone":
        for path in directory.iterdir():
            path.unlink()
    else:
        (directory / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True}))
    with pytest.raises(TokenizerError, match="changed"):
        mapped.encode(NEW)
    assert mapped.decode(mapped.encode("native still")) == "native still"


async def test_a_request_that_needs_files_that_have_gone_is_refused(mapped, directory):
    model = TextModel(mapped)
    for path in directory.iterdir():
        path.unlink()
    with pytest.raises(GatewayError) as caught:
        await prepare(model, GenerationRequest("completions", "m", prompt_text=NEW))
    assert caught.value.code == "tokenization_failed"
    assert str(directory) not in caught.value.message
