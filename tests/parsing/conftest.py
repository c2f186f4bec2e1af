"""Rule SPLIT as the cases ask for it: 20 random splits, and 200 in the full run."""

import pytest

from tests import splits


@pytest.fixture(params=[splits.RANDOM_SPLITS, pytest.param(200, marks=pytest.mark.full)])
def random_splits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For modules whose tests all cut their texts by ``tests.splits.splits``."""
    monkeypatch.setattr(splits, "RANDOM_SPLITS", request.param)
