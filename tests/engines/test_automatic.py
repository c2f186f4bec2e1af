"""``--engine-transport auto``: native where it can be, grpcio where only that reaches the engine or TLS costs less."""

import asyncio
import logging

import grpc
import pytest

from smg.config import Settings
from smg.core.errors import GatewayError
from smg.engines.carrier import carrier
from smg.engines.transport import address
from smg.engines.transport.automatic import automatic
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import LARGE, H2Transport
from smg.engines.transport.proxy import proxied
from smg.engines.transport.table import CHOICES

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")
PROXY = "http://proxy.test:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_it_is_the_default():
    assert CHOICES[Settings().fleet.engine_transport] is automatic


@pytest.mark.parametrize("url", ["grpc://engine:1", "engine:1", "grpc://[::1]:1"])
async def test_an_engine_without_tls_is_reached_natively(url):
    transport = automatic(url)
    assert type(transport) is H2Transport
    await transport.close()


async def test_an_engine_behind_tls_by_grpcio_and_the_log_says_why(caplog):
    caplog.set_level(logging.INFO)
    transport = automatic("grpcs://engine:1")
    assert type(transport) is GrpcioTokenTransport
    [record] = caplog.records
    assert (record.worker, record.reason) == ("grpcs://engine:1", "TLS")
    await transport.close()


async def test_an_engine_behind_a_proxy_by_grpcio_with_large_requests_too(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("http_proxy", PROXY)
    transport = automatic("grpc://engine:1")
    assert type(transport) is GrpcioTokenTransport
    assert transport._own is None
    assert caplog.records[0].reason == "HTTP proxy"
    await transport.close()


@pytest.mark.parametrize(
    ("url", "kind", "choice", "name"),
    [
        ("grpc://engine:1", "tokens", "auto", "native"),
        ("engine:1", "tokens", "auto", "native"),
        ("grpcs://engine:1", "tokens", "auto", "grpcio"),
        ("grpcs://engine:1", "tokens", "native", "native"),
        ("grpc://engine:1", "tokens", "grpcio", "grpcio"),
        ("grpc://engine:1", "tokens", "python", "python"),
        ("http://engine:1", "tokens", "auto", "http"),
        ("engine:1", "raw", "auto", "http"),
        ("ipc:///run/core", "tokens", "auto", "zmq"),
    ],
)
def test_operators_are_told_by_name(url, kind, choice, name):
    carrier.cache_clear()
    assert carrier(url, kind, choice) == name


def test_a_proxy_counts(monkeypatch):
    carrier.cache_clear()
    monkeypatch.setenv("grpc_proxy", PROXY)
    assert carrier("grpc://engine:1", "tokens", "auto") == "grpcio"
    carrier.cache_clear()


def test_what_is_no_address_is_refused():
    with pytest.raises(ValueError, match="host and port are required"):
        automatic("grpc://engine")


# What grpcio does with each was seen by a listener in the proxy's place.
@pytest.mark.parametrize(
    ("variables", "url", "goes_by_proxy"),
    [
        ({}, "grpc://engine:1", False),
        ({"http_proxy": PROXY}, "grpc://engine:1", True),
        ({"https_proxy": PROXY}, "grpc://127.0.0.1:1", True),
        ({"grpc_proxy": PROXY}, "grpc://localhost:1", True),
        ({"HTTP_PROXY": PROXY}, "grpc://engine:1", False),
        ({"https_proxy": "", "http_proxy": PROXY}, "grpc://engine:1", False),
        ({"http_proxy": PROXY, "no_proxy": "engine"}, "grpc://engine:1", False),
        ({"http_proxy": PROXY, "no_proxy": "a.test, ENGINE "}, "grpc://Engine:1", False),
        ({"http_proxy": PROXY, "no_proxy": ".cluster.local"}, "grpc://engine.ns.svc.cluster.local:1", False),
        ({"http_proxy": PROXY, "no_proxy": "engine:1"}, "grpc://engine:1", True),
        ({"http_proxy": PROXY, "no_proxy": "eng"}, "grpc://engine:1", True),
        ({"http_proxy": PROXY, "no_proxy": "*"}, "grpc://engine:1", True),
        ({"http_proxy": PROXY, "no_proxy": ","}, "grpc://engine:1", True),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.0/8"}, "grpc://10.1.2.3:1", False),
        ({"http_proxy": PROXY, "no_proxy": "10.0.0.0/8"}, "grpc://11.1.2.3:1", True),
        ({"http_proxy": PROXY, "no_proxy": "fd00::/8"}, "grpc://[fd00::7]:1", False),
        ({"http_proxy": PROXY, "no_grpc_proxy": "", "no_proxy": "engine"}, "grpc://engine:1", True),
        ({"http_proxy": PROXY, "no_grpc_proxy": "engine", "no_proxy": "other"}, "grpc://engine:1", False),
    ],
)
def test_a_proxy_counts_as_it_does_for_grpc(monkeypatch, variables, url, goes_by_proxy):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxied(address.parse(url)) is goes_by_proxy


async def test_a_proxy_really_carries_the_call(kit, monkeypatch):
    asked = []

    async def tunnel(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b" ")[1].decode())
        host, _, port = asked[-1].rpartition(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pour(source, sink):
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(pour(reader, up_writer), pour(up_reader, writer), return_exceptions=True)

    async def Echo(request, context):
        return request

    proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    async with proxy, kit.serve("t.T", Echo=Echo) as engine:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        transport = automatic(engine)
        assert await transport.unary("/t.T/Echo", b"through", 5) == b"through"
        assert asked == [address.parse(engine).target]
        await transport.close()


async def test_large_unary_requests_leave_natively_where_streams_do(kit):
    async def Peer(request, context):
        return context.peer().encode()

    async def Refuse(request, context):
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no encoder")

    large = bytes(LARGE)
    async with kit.serve("t.T", Peer=Peer, Refuse=Refuse) as engine:
        transport = automatic(engine)
        small = await transport.unary("/t.T/Peer", large[:-1], 5)
        assert await transport.unary("/t.T/Peer", b"", 5) == small
        assert await transport.unary("/t.T/Peer", large, 5) != small
        for message in (b"", large):
            with pytest.raises(GatewayError) as caught:
                await transport.unary("/t.T/Refuse", message, 5)
            assert (caught.value.status, caught.value.code) == (501, "not_implemented")
        await transport.close()
