"""Parsers named for single models."""

import pytest

from smg.config.load import SettingsError
from smg.config.settings import ModelSettings, Settings
from smg.parsing.choose import check_names


def test_names_of_all_models_and_of_single_ones_must_exist():
    check_names(Settings(models={"a": ModelSettings(reasoning_parser="qwen3")}))
    with pytest.raises(SettingsError) as caught:
        check_names(
            Settings(
                model=ModelSettings(reasoning_parser="nope"),
                models={"a": ModelSettings(tool_call_parser="nor-this")},
            )
        )
    first, second = caught.value.problems
    assert first.startswith("--reasoning-parser: 'nope' is none of")
    assert second.startswith("models.a: --tool-call-parser: 'nor-this' is none of")
