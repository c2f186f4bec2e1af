"""Fetching what the client names (cases MM-01, MM-02; spec multimodal 3)."""

import asyncio
import base64
import socket
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from smg.core.errors import GatewayError
from smg.core.request import MediaPart
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.sources import MediaPolicy

LOOPBACK = ("127.0.0.1/32",)


class Names:
    """Name resolution under the test's control: name -> addresses, each call may see other ones."""

    def __init__(self, **names):
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked = []

    async def resolve(self, host, port=0, family=socket.AF_INET):
        self.asked.append(host)
        if host not in self.names:
            raise OSError("no such host")
        answers = self.names[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            {"hostname": host, "host": a, "port": port, "family": family, "proto": 0, "flags": socket.AI_NUMERICHOST}
            for a in addresses
        ]

    async def close(self):
        pass


class Site:
    """A web server on loopback; it counts what reaches it."""

    def __init__(self):
        self.hits = []

    async def handle(self, request):
        self.hits.append(request.path_qs)
        name = request.path[1:]
        if name == "ok":
            return web.Response(body=b"bytes")
        if name == "redirect":
            return web.Response(status=302, headers={"Location": request.query["to"]})
        if name == "nowhere":
            return web.Response(status=302)
        if name == "loop":
            return web.Response(status=302, headers={"Location": "/loop"})
        if name == "empty":
            return web.Response(body=b"")
        if name == "gzip":
            return web.Response(body=b"x", headers={"Content-Encoding": "gzip"})
        if name == "endless":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 1000)
        if name == "drip":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x")
                await asyncio.sleep(0.02)
        if name == "headers":
            return web.json_response(dict(request.headers))
        raise web.HTTPNotFound


@asynccontextmanager
async def serving(names=None, **policy):
    site = Site()
    server = web.Server(site.handle)
    runner = web.ServerRunner(server, shutdown_timeout=0)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    port = runner.addresses[0][1]
    fetcher = Fetcher(MediaPolicy(**policy), names or Names())
    try:
        yield fetcher, site, port
    finally:
        await fetcher.close()
        await runner.cleanup()


def image(url):
    return MediaPart(kind="image", url=url)


async def refused(fetcher, url, code, text=None):
    with pytest.raises(GatewayError, match=text) as caught:
        await fetcher.fetch(image(url), "messages[0].content[1]")
    assert caught.value.code == code
    assert caught.value.status == 400
    assert caught.value.param == "messages[0].content[1]"
    return caught.value


# ---- what works


async def test_a_body_is_returned_and_the_gateway_tells_nothing_about_its_client():
    async with serving(allowed_networks=LOOPBACK) as (fetcher, _site, port):
        assert await fetcher.fetch(image(f"http://127.0.0.1:{port}/ok")) == b"bytes"
        sent = await fetcher.fetch(image(f"http://127.0.0.1:{port}/headers"))
    assert b"uthorization" not in sent
    assert b"ookie" not in sent


async def test_equal_urls_are_fetched_once_and_order_is_kept():
    async with serving(allowed_networks=LOOPBACK) as (fetcher, site, port):
        url = f"http://127.0.0.1:{port}/ok"
        data = MediaPart(kind="image", data=b"own")
        got = await fetcher.fetch_all([Wanted(image(url)), Wanted(data), Wanted(image(url)), Wanted(data)])
    assert got == [b"bytes", b"own", b"bytes", b"own"]
    assert site.hits == ["/ok"]


async def test_a_name_is_connected_to_at_the_address_that_was_judged():
    # The second answer would be another address: it must never be asked for.
    names = Names(img_example=[["127.0.0.1"], ["10.0.0.1"]])
    async with serving(names, allowed_networks=LOOPBACK) as (fetcher, site, port):
        assert await fetcher.fetch(image(f"http://img.example:{port}/ok")) == b"bytes"
    assert names.asked == ["img.example"]
    assert site.hits == ["/ok"]


async def test_a_relative_redirect_is_followed():
    async with serving(allowed_networks=LOOPBACK) as (fetcher, site, port):
        assert await fetcher.fetch(image(f"http://127.0.0.1:{port}/redirect?to=/ok")) == b"bytes"
    assert site.hits == ["/redirect?to=/ok", "/ok"]


# ---- addresses


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "10.0.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "①②⑦.0.0.1",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
    ],
)
async def test_MM_02_inner_addresses_are_refused_without_a_connection(host):
    async with serving() as (fetcher, site, port):
        await refused(fetcher, f"http://{host}:{port}/ok", "media_not_allowed", "not allowed")
    assert site.hits == []


@pytest.mark.parametrize(
    "answers", [["127.0.0.1"], ["::1"], ["8.8.8.8", "127.0.0.1"], ["64:ff9b::7f00:1"], ["169.254.169.254"]]
)
async def test_MM_02_a_name_that_resolves_to_an_inner_address_is_refused(answers):
    names = Names(cdn_example=[answers])
    async with serving(names) as (fetcher, site, port):
        await refused(fetcher, f"http://cdn.example:{port}/ok", "media_not_allowed", "not allowed: the address is")
    assert site.hits == []


async def test_MM_02_a_name_that_changes_its_mind_is_judged_again():
    names = Names(cdn_example=[["127.0.0.1"], ["127.0.0.2"]])
    for expected in ("/ok", None):
        async with serving(names, allowed_networks=LOOPBACK) as (fetcher, site, port):
            url = f"http://cdn.example:{port}/ok"
            if expected:
                await fetcher.fetch(image(url))
            else:
                await refused(fetcher, url, "media_not_allowed", "loopback")
            assert site.hits == ([expected] if expected else [])


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "//192.168.0.1/",
        "http://inner.example/",
        "http://2130706434/",
        "file:///etc/passwd",
        "ftp://8.8.8.8/x",
        "http://user:pw@8.8.8.8/",
    ],
)
async def test_MM_02_every_redirect_is_judged_like_a_first_url(target):
    names = Names(inner_example=[["10.0.0.7"]])
    async with serving(names, allowed_networks=LOOPBACK) as (fetcher, site, port):
        await refused(fetcher, f"http://127.0.0.1:{port}/redirect?to={target}", "media_not_allowed")
    assert len(site.hits) == 1


async def test_allowed_domains_hold_for_redirects_too():
    names = Names(a_example=[["127.0.0.1"]], b_example=[["127.0.0.1"]])
    policy = {"allowed_networks": LOOPBACK, "allowed_domains": frozenset({"a.example"})}
    async with serving(names, **policy) as (fetcher, _site, port):
        assert await fetcher.fetch(image(f"http://A.Example:{port}/ok")) == b"bytes"
        await refused(fetcher, f"http://b.example:{port}/ok", "media_not_allowed", r"b\.example")
        await refused(fetcher, f"http://sub.a.example:{port}/ok", "media_not_allowed")
        url = f"http://a.example:{port}/redirect?to=http://b.example:{port}/ok"
        await refused(fetcher, url, "media_not_allowed", r"b\.example")


# ---- URLs


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("iVBORw0KGgo=", "invalid_value"),
        ("ftp://example.com/a.png", "invalid_value"),
        ("gopher://127.0.0.1:70/x", "invalid_value"),
        ("javascript:alert(1)", "invalid_value"),
        ("http://", "invalid_value"),
        ("http:///a.png", "invalid_value"),
        ("http://exa mple.com/", "invalid_value"),
        ("http://8.8.8.8\\@127.0.0.1/", "invalid_value"),
        ("http://example.com/\r\nHost: inner", "invalid_value"),
        ("http://example.com:99999/", "invalid_value"),
        ("http://user:pw@example.com/", "media_not_allowed"),
        ("http://user@example.com/", "media_not_allowed"),
        ("file:///etc/passwd", "media_not_allowed"),
        ("https://no-such-host.invalid/a.png", "media_unreachable"),
    ],
)
async def test_bad_urls(url, code):
    async with serving() as (fetcher, _site, _port):
        await refused(fetcher, url, code)


async def test_neither_url_nor_data():
    async with serving() as (fetcher, _site, _port):
        await refused(fetcher, None, "invalid_value")


# ---- limits and broken servers


@pytest.mark.parametrize(
    ("path", "text"), [("missing", "404"), ("empty", "empty"), ("gzip", "compressed"), ("nowhere", "nowhere")]
)
async def test_MM_01_answers_without_media(path, text):
    async with serving(allowed_networks=LOOPBACK) as (fetcher, _site, port):
        await refused(fetcher, f"http://127.0.0.1:{port}/{path}", "media_unreachable", text)


async def test_MM_02_redirects_are_bounded():
    async with serving(allowed_networks=LOOPBACK, max_redirects=3) as (fetcher, site, port):
        await refused(fetcher, f"http://127.0.0.1:{port}/loop", "media_unreachable", "more than 3 redirects")
    assert len(site.hits) == 4


async def test_a_large_body_is_refused_by_its_length_or_while_it_comes():
    async with serving(allowed_networks=LOOPBACK, max_bytes=4) as (fetcher, _site, port):
        await refused(fetcher, f"http://127.0.0.1:{port}/ok", "media_too_large", "maximum size of 4 bytes")
        await refused(fetcher, f"http://127.0.0.1:{port}/endless", "media_too_large")
        with pytest.raises(GatewayError, match="maximum size"):
            await fetcher.fetch(MediaPart(kind="image", data=b"12345"))


async def test_MM_01_a_slow_body_runs_into_the_time_limit():
    async with serving(allowed_networks=LOOPBACK, timeout_secs=0.2) as (fetcher, _site, port):
        await refused(fetcher, f"http://127.0.0.1:{port}/drip", "media_timeout", "longer than 0.2 seconds")


async def test_MM_01_a_refused_connection_is_the_clients_error():
    async with serving(allowed_networks=LOOPBACK) as (fetcher, _site, _port):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        error = await refused(fetcher, f"http://127.0.0.1:{port}/ok", "media_unreachable")
    assert str(port) not in error.message


async def test_all_items_together_are_bounded_too():
    async with serving(max_total_bytes=10) as (fetcher, _site, _port):
        wanted = [Wanted(MediaPart("image", data=b"12345"), f"p[{i}]") for i in range(2)]
        assert await fetcher.fetch_all(wanted) == [b"12345", b"12345"]
        more = [*wanted, Wanted(MediaPart("image", data=b"1"), "p[2]")]
        with pytest.raises(GatewayError) as caught:
            await fetcher.fetch_all(more)
    assert (caught.value.code, caught.value.param) == ("media_too_large", "p[2]")


async def test_the_number_of_items_is_bounded():
    async with serving(max_items=2) as (fetcher, _site, _port):
        with pytest.raises(GatewayError, match="at most 2 media items"):
            await fetcher.fetch_all([Wanted(MediaPart(kind="image", data=b"x"))] * 3)


async def test_one_failure_cancels_the_others():
    async with serving(allowed_networks=LOOPBACK) as (fetcher, _site, port):
        wanted = [Wanted(image(f"http://127.0.0.1:{port}/drip"), "a"), Wanted(image("nonsense"), "b")]
        with pytest.raises(GatewayError) as caught:
            await fetcher.fetch_all(wanted)
        assert caught.value.param == "b"
        others = [task for task in asyncio.all_tasks() if "limited" in repr(task.get_coro())]
        assert others == []


# ---- data URLs


async def data_url(url, **policy):
    async with serving(**policy) as (fetcher, _site, _port):
        return await fetcher.fetch(image(url))


@pytest.mark.parametrize(
    "payload", ["aGVsbG8h", " aGVs\n bG8h\t", "aGVsbG8h%0A", "aGVsbG8%68"], ids=["plain", "spaces", "percent", "char"]
)
async def test_data_urls(payload):
    assert (await data_url(f"DATA:image/png;charset=x;base64,{payload}"))[:5] == b"hello"


async def test_missing_padding_is_forgiven():
    assert await data_url("data:;base64,aGVsbG8") == b"hello"


async def test_a_large_data_url_is_decoded_in_pieces():
    raw = bytes(range(256)) * 20000
    assert await data_url("data:image/png;base64," + base64.b64encode(raw).decode()) == raw


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("data:image/png;base64", "comma"),
        ("data:image/png,abc", "base64"),
        ("data:image/png;base64,a*b=", "not valid"),
        ("data:image/png;base64,é", "not valid"),
        ("data:image/png;base64,a", "not valid"),
        ("data:image/png;base64,", "empty"),
    ],
)
async def test_bad_data_urls(url, text):
    async with serving() as (fetcher, _site, _port):
        await refused(fetcher, url, "invalid_value", text)


async def test_a_data_url_above_the_limit_is_refused():
    async with serving(max_bytes=100) as (fetcher, _site, _port):
        await refused(fetcher, "data:;base64," + "A" * 140, "media_too_large")
        await refused(fetcher, "data:;base64," + "A" * 100_000, "media_too_large")


# ---- files


async def test_files_below_the_root_only(tmp_path):
    root = tmp_path / "media"
    root.mkdir()
    (root / "a b.png").write_bytes(b"pixels")
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").mkdir()
    async with serving(local_root=str(root), max_bytes=6) as (fetcher, _site, _port):
        assert await fetcher.fetch(image(f"file://{root}/a%20b.png")) == b"pixels"
        for path in (tmp_path / "secret", root / "link", root / ".." / "secret", tmp_path / "missing"):
            await refused(fetcher, f"file://{path}", "media_not_allowed", "outside")
        await refused(fetcher, f"file://{root}/folder", "media_not_allowed", "regular")
        await refused(fetcher, f"file://{root}/missing", "media_unreachable")
        await refused(fetcher, f"file://host{root}/a%20b.png", "media_not_allowed", "host")
        (root / "large").write_bytes(b"1234567")
        await refused(fetcher, f"file://{root}/large", "media_too_large")
