"""A model's formats are found out once, and again when its record is another one."""

import msgspec
import pytest

from smg.config.settings import ModelSettings, Settings
from smg.fleet.records import ModelRecord
from smg.pipeline import formats as module
from smg.pipeline.formats import Formats
from smg.text.registry import TextModel
from smg.text.tokenizer import Tokenizer
from tests.text.makers import chat_model


@pytest.fixture
def text(tmp_path):
    return TextModel(Tokenizer(chat_model(tmp_path)), None)


@pytest.fixture
def asked(monkeypatch):
    calls = []
    real = module.choose

    def choose(settings, model, *evidence):
        calls.append(model)
        return real(settings, model, *evidence)

    monkeypatch.setattr(module, "choose", choose)
    return calls


def test_once_per_record(text, asked):
    formats = Formats(Settings())
    record = ModelRecord("m")
    assert formats.of(record, text) is formats.of(record, text)
    assert asked == ["m"]
    formats.of(ModelRecord("other"), text)
    formats.of(record, text)
    assert asked == ["m", "other"]


def test_a_new_alias_may_bring_other_settings(text):
    settings = Settings(models={"alias": ModelSettings(tool_call_parser="mistral")})
    formats = Formats(settings)
    record = ModelRecord("m")
    assert formats.of(record, text).tools.name != "mistral"
    assert formats.of(msgspec.structs.replace(record, aliases=("alias",)), text).tools.name == "mistral"
