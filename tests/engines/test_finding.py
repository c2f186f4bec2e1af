"""Who answers at a URL: by its scheme, or by asking (spec engine-contract 4.1)."""

import pytest

from smg.core.errors import GatewayError
from smg.engine_server.mock import MockEngine
from smg.engine_server.mock.http import MockHttpEngine
from smg.engines.finding import Finder, scheme_of


async def found(url: str, runtime: str = ""):
    finder = Finder(url, runtime)
    try:
        driver = await finder.find()
        answer = (driver.kind, (await driver.info()).model_id, driver.runtime)
        await driver.close()
        return answer
    finally:
        await finder.close()


@pytest.mark.parametrize(
    ("url", "scheme"),
    [("grpc://a:1", "grpc"), ("grpcs://a:1", "grpc"), ("http://a", "http"), ("https://a@1", "http"), ("a:1", "")],
)
def test_the_scheme(url, scheme):
    assert scheme_of(url) == scheme


@pytest.mark.parametrize("url", ["ftp://a:1", "grpc://a", "http://", "zmq://a", "ipc://a"])
def test_what_is_no_engines_url(url):
    with pytest.raises(ValueError, match=url.partition(":")[0]):
        Finder(url)


async def test_a_scheme_decides():
    async with MockHttpEngine(server="vllm") as http, MockEngine(contract="sglang") as grpc:
        assert await found(http.url) == ("raw", "mock-model", "vllm")
        assert await found(http.url, "sglang") == ("raw", "mock-model", "sglang")
        assert await found(grpc.url) == ("tokens", "mock-model", "sglang")


async def test_without_one_both_are_asked():
    async with MockHttpEngine(server="sglang") as http, MockEngine(contract="mlx") as grpc:
        assert await found(http.address) == ("raw", "mock-model", "sglang")
        assert await found(grpc.address) == ("tokens", "mock-model", "mlx")
        assert not http.requests
        assert not grpc.requests
    with pytest.raises(GatewayError) as caught:
        await found("127.0.0.1:1")
    assert caught.value.worker_fault
