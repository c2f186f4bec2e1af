"""Where a model's tokenizer comes from, in order (spec text-pipeline 6)."""

import asyncio
import json
import logging
import shutil
from pathlib import Path

import grpc
import msgspec
import pytest

from smg.config.settings import ModelSettings
from smg.engine_server.llama import default_model
from smg.engine_server.mock import Fault, MockEngine, Script
from smg.engines.driver import GrpcDriver
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.vllm.adapter import VllmAdapter
from smg.fleet.records import TokenizerRecord
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSpec
from smg.fleet.tokenizer_files import loadable
from smg.fleet.tokenizer_source import TokenizerError, digest, find
from smg.fleet.tokenizers import Tokenizers
from tests.gateway import until_async

NO_BUNDLE = Script(faults=(Fault(rpc="GetTokenizer", status=grpc.StatusCode.FAILED_PRECONDITION, message="no path"),))


@pytest.fixture
async def engine():
    async with MockEngine() as engine:
        yield engine


@pytest.fixture
async def driver(engine):
    driver = GrpcDriver(engine.url, VllmAdapter(), GrpcioTransport(engine.url))
    yield driver
    await driver.close()


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "tokenizer.json").write_text("{}")
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


async def test_the_flags_come_first(driver, engine, directory, tmp_path, told):
    other = tmp_path / "other"
    other.mkdir()
    (other / "vocab.json").write_text("{}")
    (other / "merges.txt").write_text("")
    settings = ModelSettings(tokenizer_path=str(directory), model_path=str(other))
    found = await find(settings, driver, told(), tmp_path / "cache")
    assert (found.directory, found.key) == (directory, digest(directory))
    found = await find(ModelSettings(model_path=str(other)), driver, told(), tmp_path / "cache")
    assert found.directory == other
    found = await find(
        ModelSettings(tokenizer_path=str(directory / "tokenizer.json")), driver, told(), tmp_path / "cache"
    )
    assert found.directory == directory
    assert engine.calls["GetTokenizer"] == 0


async def test_the_engines_bundle(driver, tmp_path, told):
    cache = tmp_path / "cache"
    found = await find(ModelSettings(), driver, told(), cache)
    assert found.directory == cache / found.key
    assert (found.directory / "tokenizer.json").is_file()
    # A hub name is no directory: the engine has the files.
    assert await find(ModelSettings(model_path="Qwen/Qwen2.5-7B"), driver, told(), cache) == found


async def test_the_engines_own_directory_when_it_sends_no_bundle(driver, engine, directory, tmp_path, told):
    engine.script = NO_BUNDLE
    found = await find(ModelSettings(), driver, told(tokenizer_path=str(directory)), tmp_path / "cache")
    assert found.directory == directory
    info = told(tokenizer_path="org/name", model_path=str(directory))
    assert (await find(ModelSettings(), driver, info, tmp_path / "cache")).directory == directory


@pytest.mark.parametrize("info", [{}, {"tokenizer_path": "/nowhere"}, {"tokenizer_path": "org/name"}])
async def test_nobody_has_one(driver, engine, tmp_path, told, info):
    engine.script = NO_BUNDLE
    with pytest.raises(TokenizerError, match="no path"):
        await find(ModelSettings(), driver, told(**info), tmp_path / "cache")


async def test_a_configured_path_that_leads_nowhere_is_an_error_not_a_fallback(driver, tmp_path, told):
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (str(tmp_path / "missing"), "./missing", "some/tokenizer.json", str(empty)):
        with pytest.raises(TokenizerError, match="--tokenizer-path"):
            await find(ModelSettings(tokenizer_path=path), driver, told(), tmp_path / "cache")


def test_the_key_follows_the_tokenizers_content_only(directory):
    before = digest(directory)
    (directory / "model.safetensors").write_bytes(b"other weights")
    assert digest(directory) == before
    (directory / "tokenizer.json").write_text('{"a": 1}')
    changed = digest(directory)
    assert changed != before
    (directory / "chat_template.jinja").write_text("hi")
    assert digest(directory) != changed


async def test_a_model_gets_its_tokenizer_once_and_failures_are_retried(
    driver, engine, region, tmp_path, told, monkeypatch
):
    monkeypatch.setattr("smg.fleet.tokenizers._FIRST_RETRY_SECS", 0.05)
    registry = Registry(region)
    info = told()
    registry.identify(registry.add(WorkerSpec(engine.url)).id, "vllm", info)
    tokenizers = Tokenizers(ModelSettings(), registry, lambda model: [(driver, info)], tmp_path)
    engine.script = NO_BUNDLE
    tokenizers.want("llama")
    tokenizers.want("llama")
    async with asyncio.timeout(5):
        while not registry.models[0].tokenizer_error:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "no path" in registry.models[0].tokenizer_error
    engine.script = Script()
    async with asyncio.timeout(5):
        while not registry.models[0].tokenizer_dir:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    model = registry.models[0]
    assert model.tokenizer_error == ""
    assert model.tokenizer_dir == str(tmp_path / model.tokenizer_key)
    assert engine.calls["GetTokenizer"] == 1
    await tokenizers.close()


async def test_files_that_somebody_removes_are_fetched_again_and_the_record_stays_meanwhile(
    driver, engine, region, tmp_path, told, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "smg.fleet")
    monkeypatch.setattr("smg.fleet.tokenizers._LOOK_SECS", 0.05)
    registry = Registry(region)
    info = told()
    registry.identify(registry.add(WorkerSpec(engine.url)).id, "vllm", info)
    cache = tmp_path / "cache"
    tokenizers = Tokenizers(ModelSettings(), registry, lambda model: [(driver, info)], cache)
    tokenizers.want("llama")
    await until_async(lambda: bool(registry.models[0].tokenizer_dir))
    before = msgspec.structs.replace(registry.models[0])
    watching = asyncio.create_task(tokenizers.watch())
    engine.script = NO_BUNDLE
    shutil.rmtree(cache)
    await until_async(lambda: engine.calls["GetTokenizer"] > 2)
    assert registry.models[0] == before, "who has loaded it goes on with it"
    engine.script = Script()
    await until_async(lambda: (Path(before.tokenizer_dir) / "tokenizer.json").is_file())
    await until_async(lambda: "tokenizer is ready" in caplog.text.split("have gone")[-1])
    assert registry.models[0] == before
    assert caplog.text.count("have gone") == 1
    calls = engine.calls["GetTokenizer"]
    await asyncio.sleep(0.2)
    assert engine.calls["GetTokenizer"] == calls
    watching.cancel()
    await tokenizers.close()


async def test_a_gguf_file_becomes_a_directory_as_engines_send_it(driver, tmp_path, told):
    file = tmp_path / "model.gguf"
    file.symlink_to(default_model())
    cache = tmp_path / "cache"
    found = await find(ModelSettings(model_path=str(file)), driver, told(), cache)
    assert found.directory == cache / found.key
    assert await find(ModelSettings(tokenizer_path=str(file)), driver, told(), cache) == found
    generation = json.loads((found.directory / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2]
    assert "<|im_start|>" in json.loads((found.directory / "tokenizer_config.json").read_text())["chat_template"]
    assert (found.directory / "tokenizer.json").is_file()


async def test_a_file_that_is_no_gguf_says_so(driver, tmp_path, told):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"not a model at all, whatever its name says")
    with pytest.raises(TokenizerError, match=r"--model-path: .*is not a GGUF file"):
        await find(ModelSettings(model_path=str(file)), driver, told(), tmp_path / "cache")


@pytest.mark.parametrize("name", ["tokenizer.model", "tekken.json", "tiktoken.model", "qwen.tiktoken", "x.model.v3"])
async def test_other_formats_are_found_by_directory_and_by_file(driver, tmp_path, told, name):
    (tmp_path / name).write_bytes(b"x")
    found = {
        (await find(ModelSettings(model_path=str(path)), driver, told(), tmp_path / "cache")).key
        for path in (tmp_path, tmp_path / name)
    }
    assert found == {digest(tmp_path)}
    before = digest(tmp_path)
    (tmp_path / name).write_bytes(b"y")
    assert digest(tmp_path) != before
    # Beside a tokenizer.json they do not matter, and naming one would change nothing.
    (tmp_path / "tokenizer.json").write_text("{}")
    assert await find(ModelSettings(model_path=str(tmp_path)), driver, told(), tmp_path / "cache")
    with pytest.raises(TokenizerError, match=r"tokenizer.json beside it would be loaded"):
        await find(ModelSettings(model_path=str(tmp_path / name)), driver, told(), tmp_path / "cache")


def test_the_best_of_several_formats(tmp_path):
    def add(name: str, content: str = "{}") -> str:
        (tmp_path / name).write_text(content)
        return loadable(tmp_path).name

    assert add("a.model.v3") == "a.model.v3"
    assert add("z.model") == "z.model"
    assert add("tokenizer.model") == "tokenizer.model"
    (tmp_path / "merges.txt").write_text("")
    assert add("vocab.json") == "tokenizer.model"
    assert add("tiktoken.model") == "tiktoken.model"
    assert add("tekken.json") == "tekken.json"
    assert add("tokenizer_config.json", '{"tokenizer_class": "Qwen2Tokenizer"}') == "vocab.json"
    assert add("tokenizer.json") == "tokenizer.json"


async def test_other_files_are_refused_with_what_would_do(driver, tmp_path, told):
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(TokenizerError, match=r"neither a tokenizer file nor a GGUF file"):
        await find(ModelSettings(model_path=str(tmp_path / "weights.bin")), driver, told(), tmp_path / "cache")


async def obtained(registry, tokenizers):
    """The model's record once its tokenizer has been looked for."""
    tokenizers.want("llama")
    async with asyncio.timeout(5):
        while not (registry.models[0].tokenizer_dir or registry.models[0].tokenizer_error):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await tokenizers.close()
    return registry.models[0]


async def test_without_autoload_only_added_tokenizers_are_used(driver, engine, directory, region, tmp_path, told):
    registry, info = Registry(region), told()
    registry.identify(registry.add(WorkerSpec(engine.url)).id, "vllm", info)
    settings = ModelSettings(disable_tokenizer_autoload=True)
    tokenizers = Tokenizers(settings, registry, lambda model: [(driver, info)], tmp_path)
    model = await obtained(registry, tokenizers)
    assert (model.tokenizer_dir, engine.calls["GetTokenizer"]) == ("", 0)
    assert "none has been added" in model.tokenizer_error
    added = TokenizerRecord("1", "llama", "x", "own.jinja", "completed", directory=str(directory), key="k")
    registry.put_tokenizer(added)
    model.tokenizer_error = ""
    model = await obtained(registry, tokenizers)
    assert (model.tokenizer_dir, model.tokenizer_key, model.chat_template) == (str(directory), "k", "own.jinja")


async def test_a_model_may_have_settings_of_its_own(driver, engine, directory, region, tmp_path, told):
    registry, info = Registry(region), told()
    registry.identify(registry.add(WorkerSpec(engine.url)).id, "vllm", info)
    own = {"llama": ModelSettings(tokenizer_path=str(directory)), "other": ModelSettings(tokenizer_path="/nowhere")}
    tokenizers = Tokenizers(ModelSettings(), registry, lambda model: [(driver, info)], tmp_path, own)
    assert (await obtained(registry, tokenizers)).tokenizer_dir == str(directory)
    assert engine.calls["GetTokenizer"] == 0
