"""Files of tokenizers, made by a process of its own: once per key, whole or not at all."""

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from smg.control import prepared_tokenizers
from smg.control.prepared_tokenizers import PreparedTokenizers
from smg.core.background import NICENESS
from smg.fleet.tokenizer_files import digest
from smg.text.config_files import TokenizerError
from smg.text.mapped.folder import Folder
from smg.text.tokenizer import Tokenizer
from tests.gateway import children
from tests.text.makers import byte_level_json, chat_model, metaspace_json, write_model

KEY = "c0" * 32
# A model whose tokenizer is never read to its end: the process that prepares it waits for a writer.
WAITS = "waits"


@pytest.fixture
def model(tmp_path):
    return chat_model(tmp_path / "model")


@pytest.fixture
def waiting(tmp_path):
    """A directory from which a process cannot finish to load: its tokenizer is a pipe that nobody writes."""
    directory = tmp_path / WAITS
    directory.mkdir()
    (directory / "tokenizer_config.json").write_text("{}")
    os.mkfifo(directory / "config.json")
    (directory / "tokenizer.json").write_text("{}")
    assert stat.S_ISFIFO((directory / "config.json").stat().st_mode)
    return directory


@pytest.fixture
async def place(tmp_path, monkeypatch):
    """The files of tokenizers, small ones too."""
    monkeypatch.setattr(prepared_tokenizers, "SMALL_BYTES", 0)
    place = PreparedTokenizers(Folder(tmp_path / "prepared"))
    place.folder = place._folder
    place.start()
    yield place
    await place.close()


def files(place) -> list[str]:
    return sorted(path.name for path in place.folder.path.glob("*")) if place.folder.path.exists() else []


def makers() -> list[int]:
    """Processes that this one has started to prepare tokenizers."""
    return [pid for pid in children(os.getpid()) if b"smg.text.mapped" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def started(count: int = 1) -> list[int]:
    async with asyncio.timeout(20):
        while len(makers()) < count:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    return makers()


async def test_a_file_that_another_process_made_is_used(place, model):
    """With another joiner than that process had: it is another one in each gateway."""
    assert await place.prepare(model, KEY) == Tokenizer(model).size
    mapped, loaded = Tokenizer(model, place.folder.open(KEY)), Tokenizer(model)
    typed = "hello <|im_end|> <tool_call> e\u0301"
    for text in (typed, loaded.shield.protect_text(typed)):
        assert mapped.encode(text) == loaded.encode(text)
    assert mapped.shield.protect_text(typed) == loaded.shield.protect_text(typed)
    assert mapped.literals == loaded.literals
    assert not mapped._vocabulary._lazy.loaded


async def test_once_per_key_however_many_ask(place, model, monkeypatch):
    runs = []
    real = prepared_tokenizers._make

    async def counted(*arguments):
        runs.append(arguments)
        return await real(*arguments)

    monkeypatch.setattr(prepared_tokenizers, "_make", counted)
    sizes = await asyncio.gather(*(place.prepare(model, KEY) for _ in range(5)))
    assert (len(set(sizes)), len(runs)) == (1, 1)
    assert await place.prepare(model, KEY) == sizes[0]
    await place.attempt(model, "d1" * 32)
    assert len(runs) == 2
    assert len(files(place)) == 2


async def test_small_ones_are_loaded_as_they_are(place, model, tmp_path, monkeypatch):
    monkeypatch.setattr(prepared_tokenizers, "SMALL_BYTES", 1 << 20)
    assert await place.prepare(model, KEY) == Tokenizer(model).size
    await place.attempt(model, KEY)
    assert files(place) == []
    with pytest.raises(TokenizerError, match="no tokenizer"):
        await place.prepare(tmp_path, KEY)


async def test_a_damaged_file_is_made_again(place, model):
    size = await place.prepare(model, KEY)
    path = place.folder.file(KEY)
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    assert await place.prepare(model, KEY) == size
    assert len(path.read_bytes()) == len(good)
    assert place.folder.open(KEY).tables


async def test_what_only_the_library_can_do_is_found_out_once(place, tmp_path, monkeypatch):
    model = write_model(tmp_path / "llama", metaspace_json("legacy"))
    size = await place.prepare(model, KEY)
    assert place.folder.open(KEY).tables is None
    monkeypatch.setattr(prepared_tokenizers, "_make", None)
    assert await place.prepare(model, KEY) == size


async def test_tokenizers_that_cannot_be_loaded_say_why(place, tmp_path, caplog):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match="is not a tokenizer"):
        await place.prepare(tmp_path / "broken", KEY)
    await place.attempt(tmp_path / "broken", KEY)
    assert "could not be prepared" in caplog.text
    assert files(place) == []


async def test_where_there_should_be_a_folder(place, model, caplog):
    place.folder.path.touch()
    assert await place.prepare(model, KEY) == Tokenizer(model).size
    assert "cannot be written" in caplog.text


async def test_what_no_file_can_hold(place, tmp_path, caplog):
    model = write_model(tmp_path / "odd", byte_level_json(), config={"eos_token_id": 10**30})
    assert await place.prepare(model, KEY) == Tokenizer(model).size
    assert "cannot be written" in caplog.text
    assert files(place) == []


async def test_the_process_steps_back_and_its_death_leaves_nothing(place, waiting, model):
    task = asyncio.create_task(place.prepare(waiting, KEY))
    [pid] = await started()
    async with asyncio.timeout(20):
        while os.getpriority(os.PRIO_PROCESS, pid) < NICENESS:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(TokenizerError, match="status -9"):
        await task
    assert files(place) == []
    assert await place.prepare(model, KEY)


async def test_who_stops_waiting_does_not_stop_the_others(place, waiting):
    first, second = (asyncio.create_task(place.prepare(waiting, KEY)) for _ in range(2))
    [pid] = await started()
    first.cancel()
    await asyncio.sleep(0.05)
    assert (makers(), second.done()) == ([pid], False)
    await place.close()
    assert makers() == []
    assert second.cancelled() or second.done()


async def test_one_that_takes_too_long_is_killed(place, waiting, monkeypatch):
    monkeypatch.setattr(prepared_tokenizers, "MAKE_SECS", 0.2)
    with pytest.raises(TokenizerError, match="longer than"):
        await place.prepare(waiting, KEY)
    assert (makers(), files(place)) == ([], [])


async def test_the_key_is_of_the_content_and_so_is_the_file(place, model):
    key = digest(model)
    await place.prepare(model, key)
    assert place.folder.open(key).head.sources == key
