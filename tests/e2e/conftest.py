"""One gateway with the embedded engine for all end-to-end tests of a run, and its engine for other gateways."""

from collections.abc import Iterator

import pytest

from tests.gateway import Gateway, running, settings


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    with running(settings(state, "--embedded-engine", "--workers", "2")) as started:
        yield started


@pytest.fixture(scope="session")
def engine(gateway: Gateway) -> str:
    """URL of the embedded engine: a real model for gateways with other settings, ready at once."""
    (worker,) = gateway.get("/workers").json()["workers"]
    return worker["url"]
