"""The registry: one load per content, clear answers while it is not there, retries when the record changes."""

import threading
import time

import msgspec
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders

from smg.config.settings import ModelSettings, TokenizerCacheSettings
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest, Message, TextPart
from smg.engine_server.llama import default_model
from smg.fleet.gguf_source import unpack_gguf
from smg.fleet.records import ModelRecord
from smg.text import memory
from smg.text import registry as registry_module
from smg.text.mapped.file import write
from smg.text.mapped.folder import Folder
from smg.text.mapped.make import prepare
from smg.text.registry import TextModel, TextRegistry
from smg.text.tokenizer import TokenizerError
from smg.text.vocabulary import LoadedVocabulary, MappedVocabulary
from tests.golden.families import family
from tests.text.makers import CHATML, byte_level_json, chat_model, write_model


@pytest.fixture
def registry():
    registry = TextRegistry(ModelSettings())
    yield registry
    registry.close()


def refused(call) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        call()
    return caught.value


def record_of(directory, key="k1") -> ModelRecord:
    return ModelRecord("m", tokenizer_dir=str(directory), tokenizer_key=key)


def test_get_starts_the_load_and_answers_when_it_is_done(registry, tmp_path, monkeypatch):
    gate = threading.Event()

    def slow(*arguments):
        gate.wait()
        return TextModel(*arguments)

    monkeypatch.setattr(registry_module, "TextModel", slow)
    record = record_of(chat_model(tmp_path))
    error = refused(lambda: registry.get(record))
    assert (error.code, error.status) == ("tokenizer_not_ready", 503)
    assert "'m'" in error.message
    assert not registry.ready(record)
    gate.set()
    model = registry.ensure(record).result(30)
    assert registry.ready(record)
    assert registry.get(record) is model
    assert model.chat().template.source == CHATML


def test_a_model_is_known_at_once_while_its_record_is_the_same(registry, tmp_path):
    record = record_of(chat_model(tmp_path))
    registry.ensure(record).result(30)
    assert registry.known(record) is None
    model = registry.get(record)
    assert registry.known(record) is model
    assert registry.known(msgspec.structs.replace(record)) is None
    registry.prune([record])
    assert registry.known(record) is None
    assert registry.get(record) is model


def test_one_load_per_key(registry, tmp_path):
    record = record_of(chat_model(tmp_path))
    other = msgspec.structs.replace(record, id="other")
    assert registry.ensure(record) is registry.ensure(other)
    model = registry.ensure(record).result(30)
    assert registry.get(other) is model
    assert registry.ensure(record_of(tmp_path, "k2")).result(30) is not model


@pytest.mark.parametrize("reason", ["", "bundle of 10.0.0.1 is broken"])
def test_a_record_without_files_is_not_ready(registry, reason):
    record = ModelRecord("m", tokenizer_key="k", tokenizer_error=reason)
    assert registry.ensure(record) is None
    error = refused(lambda: registry.get(record))
    assert (error.code, error.detail) == ("tokenizer_not_ready", reason)
    assert "10.0.0.1" not in error.message


def test_failures_stay_until_the_record_changes(registry, tmp_path):
    record = record_of(tmp_path / "m")
    failed = registry.ensure(record)
    with pytest.raises(TokenizerError):
        failed.result(30)
    error = refused(lambda: registry.get(record))
    assert (error.code, error.status) == ("tokenizer_not_ready", 503)
    assert "tokenizer.json" in error.detail
    assert str(tmp_path) not in error.message
    chat_model(tmp_path / "m")
    assert registry.ensure(record) is failed
    changed = msgspec.structs.replace(record, created=1)
    assert registry.ensure(changed).result(30).chat()
    assert registry.ready(changed)


def test_models_nobody_needs_are_forgotten(registry, tmp_path):
    record = record_of(chat_model(tmp_path))
    registry.ensure(record).result(30)
    registry.prune([record])
    assert registry.ready(record)
    registry.prune([])
    assert not registry.ready(record)


def test_the_operators_template_wins(tmp_path):
    override = tmp_path / "mine.jinja"
    override.write_text("mine")
    registry = TextRegistry(ModelSettings(chat_template=str(override)))
    model = registry.ensure(record_of(chat_model(tmp_path / "m"))).result(30)
    assert model.chat().template.source == "mine"
    registry.close()


PRINTS = "{% for m in messages %}{{ m.content }};{% endfor %}"


@pytest.mark.parametrize(
    ("everywhere", "here", "prompt"),
    [
        (None, None, "a\nb;"),
        ("string", None, "a\nb;"),
        ("openai", None, "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}];"),
        ("openai", "string", "a\nb;"),
        ("openai", "auto", "a\nb;"),
        ("string", "openai", "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}];"),
    ],
)
def test_the_operator_knows_the_form_of_contents_better(tmp_path, everywhere, here, prompt):
    own = {} if here is None else {"m": ModelSettings(chat_template_content_format=here)}
    registry = TextRegistry(ModelSettings(chat_template_content_format=everywhere), models=own)
    model = registry.ensure(record_of(chat_model(tmp_path, PRINTS))).result(30)
    request = GenerationRequest("chat", "m", [Message("user", [TextPart("a"), TextPart("b")])])
    assert model.chat().render(request).prompt == prompt
    registry.close()


def test_models_with_other_forms_of_contents_are_others_though_they_share_their_tokenizer(tmp_path):
    own = {"n": ModelSettings(chat_template_content_format="openai")}
    registry = TextRegistry(ModelSettings(), models=own)
    first = record_of(chat_model(tmp_path, PRINTS))
    second = msgspec.structs.replace(first, id="n")
    one, other = (registry.ensure(record).result(30) for record in (first, second))
    assert one is not other
    assert one.tokenizer is other.tokenizer
    registry.close()


def test_the_variant_for_tools(tmp_path):
    entries = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    model = TextModel(write_model(tmp_path, byte_level_json(), tokenizer_config={"chat_template": entries}))
    assert model.chat().template.source == "plain"
    assert model.chat(tools=True).template.source == "tools"


def test_models_without_a_template_or_with_a_broken_one_refuse_only_chat(tmp_path):
    error = refused(TextModel(chat_model(tmp_path, None)).chat)
    assert (error.code, error.status) == ("process_messages_failed", 400)
    assert "no chat template" in error.message
    broken = TextModel(chat_model(tmp_path, "{% if %}"))
    assert "cannot be compiled" in refused(broken.chat).message
    assert broken.tokenizer.encode("hello")


def test_a_decoder_that_needs_neighbours_only_stops_generation(tmp_path):
    suffixed = Library.from_str(family("wordpiece").to_str())
    suffixed.decoder = decoders.BPEDecoder()
    suffixed.save(str(tmp_path / "tokenizer.json"))
    model = TextModel(tmp_path)
    assert model.encoder.encode("hello") == family("wordpiece").encode("hello", add_special_tokens=False).ids
    assert not model.decodes
    error = refused(lambda: model.decoder)
    assert (error.code, error.status) == ("not_implemented", 501)
    assert "BPEDecoder" in error.detail


@pytest.mark.parametrize(
    ("settings", "exact", "prefix"),
    [
        ({}, True, True),
        ({"enable_l0": False}, False, True),
        ({"enable_l1": False}, True, False),
        ({"enable_l0": False, "enable_l1": False}, False, False),
    ],
)
def test_each_level_of_the_cache_can_be_switched_off(tmp_path, settings, exact, prefix):
    registry = TextRegistry(ModelSettings(), TokenizerCacheSettings(**settings))
    model = registry.ensure(record_of(chat_model(tmp_path))).result(30)
    prompt = "<|im_start|>user\n" + "hello world, " * 20 + "<|im_end|>\n<|im_start|>assistant\n"
    assert [model.encoder.encode(prompt) for _ in range(2)] == [model.tokenizer.encode(prompt)] * 2
    assert model.encoder.encode(prompt + "hello") == model.tokenizer.encode(prompt + "hello")
    stats = registry.encoders()["k1"].stats()
    assert (stats.exact_hits == 1, stats.exact_bytes > 0) == (exact, exact)
    assert (stats.prefix_hits > 0, stats.prefix_bytes > 0) == (prefix, prefix)
    registry.close()


def test_encoders_are_those_of_loaded_models_by_the_beginning_of_the_key(registry, tmp_path):
    record = record_of(chat_model(tmp_path), key="0123456789abcdef")
    broken = msgspec.structs.replace(record, tokenizer_dir=str(tmp_path / "no"), tokenizer_key="broken")
    model = registry.ensure(record).result(30)
    with pytest.raises(TokenizerError):
        registry.ensure(broken).result(30)
    assert registry.encoders() == {"0123456789ab": model.encoder}


def test_a_failed_load_is_logged_with_its_reason(registry, tmp_path, caplog):
    with pytest.raises(TokenizerError):
        registry.ensure(record_of(tmp_path)).result(30)
    # It is logged by the loading thread, after the result is there.
    until = time.monotonic() + 5
    while time.monotonic() < until:
        found = [record for record in caplog.records if str(tmp_path) in record.error]
        if found:
            break
        time.sleep(0.005)
    assert [(record.getMessage(), record.model) for record in found] == [("the tokenizer could not be loaded", "m")]


def test_a_failed_load_is_tried_again_after_a_while(registry, tmp_path, monkeypatch):
    record = record_of(tmp_path)
    failed = registry.ensure(record)
    with pytest.raises(TokenizerError):
        failed.result(30)
    chat_model(tmp_path)
    assert registry.ensure(record) is failed, "not for each request"
    monkeypatch.setattr("smg.text.registry.RETRY_SECS", 0.0)
    assert registry.ensure(record).result(30).tokenizer.size > 0


def test_a_gguf_s_tokenizer_loads_as_any_other(tmp_path):
    model = TextModel(unpack_gguf(default_model(), tmp_path).directory)
    prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert model.tokenizer.decode(model.encoder.encode(prompt), skip_special_tokens=False) == prompt
    assert model.tokenizer.eos_ids == (2,)
    assert "<|im_start|>" in model.chat().template.source


def test_models_with_the_same_files_share_their_tokenizer_and_with_the_same_template_everything(tmp_path):
    mine = tmp_path / "mine.jinja"
    mine.write_text("mine")
    models = {"b": ModelSettings(chat_template=str(mine)), "alias": ModelSettings(chat_template=str(mine))}
    registry = TextRegistry(ModelSettings(), models=models)
    record = record_of(chat_model(tmp_path / "m"))
    records = [record, *(msgspec.structs.replace(record, id=name) for name in ("b", "c"))]
    records.append(msgspec.structs.replace(record, id="d", aliases=["alias"]))
    first, second, third, fourth = (registry.ensure(one).result(30) for one in records)
    assert first is third
    assert second is fourth
    assert first.tokenizer is second.tokenizer
    assert [one.chat().template.source for one in (first, second)] == [CHATML, "mine"]
    assert list(registry.encoders()) == ["k1", "k1-2"]
    registry.prune(records[1:2])
    assert registry.get(records[1]).tokenizer is first.tokenizer
    assert not registry.ready(record)
    registry.prune([])
    assert registry.ensure(record).result(30).tokenizer is not first.tokenizer
    registry.close()


def test_a_prepared_tokenizer_is_mapped_and_one_that_does_not_fit_is_loaded(tmp_path, caplog):
    folder, key = Folder(tmp_path / "prepared"), "ab" * 32
    folder.path.mkdir()
    record = record_of(chat_model(tmp_path / "m"), key)
    made = prepare(tmp_path / "m", key)
    write(folder.file(key), made.head, made.sections)
    write(folder.file("cd" * 32), made.head, made.sections)
    registry = TextRegistry(ModelSettings(), folder=folder)
    mapped = registry.ensure(record).result(30)
    assert isinstance(mapped.tokenizer._vocabulary, MappedVocabulary)
    assert not caplog.records
    # A file under the wrong name is another tokenizer's; one that is not there is nothing to tell of.
    other, missing = (registry.ensure(record_of(tmp_path / "m", some * 32)).result(30) for some in ("cd", "ef"))
    for model in (other, missing):
        assert isinstance(model.tokenizer._vocabulary, LoadedVocabulary)
        assert model.encoder.encode("hello") == mapped.encoder.encode("hello")
    assert [record.getMessage() for record in caplog.records] == ["a prepared tokenizer cannot be used"]
    registry.close()


def test_memory_is_given_back_only_after_loading(tmp_path, monkeypatch):
    given: list[bool] = []
    monkeypatch.setattr(registry_module, "give_back", lambda: given.append(True))
    folder, key = Folder(tmp_path), "ab" * 32
    made = prepare(chat_model(tmp_path / "m"), key)
    registry = TextRegistry(ModelSettings(), folder=folder)
    registry.ensure(record_of(tmp_path / "m", "k1")).result(30)
    assert given == [True]
    write(folder.file(key), made.head, made.sections)
    registry.ensure(record_of(tmp_path / "m", key)).result(30)
    assert given == [True]
    registry.close()


def test_giving_memory_back_is_for_systems_that_can(monkeypatch):
    memory.give_back()
    monkeypatch.setattr(memory, "_trim", lambda: None)
    memory.give_back()
