"""One gateway with the embedded engine for all end-to-end tests of a run."""

from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, running, settings


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    with running(settings(state, "--embedded-engine", "--workers", "2")) as started:
        yield started
