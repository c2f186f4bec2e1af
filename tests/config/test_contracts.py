"""The settings' choices are the drivers there are (settings cannot import the table: it lies above them)."""

from typing import get_args

import pytest

from smg.config.groups.fleet import Contract
from smg.config.load import SettingsError, load
from smg.engine_server.mock import CONTRACTS
from smg.engines.table import ADAPTERS


def test_backend_has_the_tables_names():
    assert get_args(Contract) == tuple(ADAPTERS) == tuple(CONTRACTS)
    for name in ADAPTERS:
        assert load(["--backend", name], {}).fleet.backend == name


def test_another_name_is_refused():
    with pytest.raises(SettingsError, match="backend"):
        load(["--backend", "poem"], {})
