"""Bytes of media that a request names: over HTTP, from a data URL, from a file or already in the request.

Guards against a client that uses the gateway to reach what it can't reach itself (cases MM-01, MM-02): only http and
https, no credentials in URLs, every address judged after resolution by the resolver the connection is made with, every
redirect judged like a first URL, and limits on bytes, time, hops and items (spec multimodal 3).
"""

import asyncio
import io
import socket
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from smg.core import clock
from smg.core.media import Encoded
from smg.core.request import MediaPart
from smg.telemetry.metrics import Metrics
from smg.vision.addresses import Network, literal, parse_networks, refusal
from smg.vision.sources import MediaPolicy, read_data_url, read_file_url, refuse, too_large

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK = 1 << 16
_END = 1024


class Resolver(Protocol):
    """Name to addresses, as ``aiohttp.abc.AbstractResolver``."""

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = ...) -> list[ResolveResult]: ...

    async def close(self) -> None: ...


class Wanted(NamedTuple):
    """One item to fetch and where in the request it stands (``messages[0].content[1]``)."""

    part: MediaPart
    param: str | None = None


class _Refused(Exception):
    """An address that must not be connected to; passes through aiohttp unchanged, unlike an OSError."""


class _JudgingResolver(AbstractResolver):
    """Resolves, then refuses the whole name if any of its addresses is not allowed.

    aiohttp connects to exactly what this returns, so that a name can't change its mind in between (DNS rebinding).
    """

    def __init__(self, inner: Resolver, allowed: tuple[Network, ...]) -> None:
        self._inner = inner
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for one in found:
            _judge(one["host"], self._allowed)
        return found

    async def close(self) -> None:
        await self._inner.close()


def _judge(address: str, allowed: tuple[Network, ...]) -> None:
    try:
        parsed = literal(address)
    except ValueError as error:
        raise _Refused(str(error)) from None
    if parsed is None:
        raise _Refused("the resolver gave no address")
    why = refusal(parsed, allowed)
    if why is not None:
        raise _Refused(f"the address is {why}")


def _likeness(kind: str, url: str) -> Hashable:
    """What equal URLs have in common. The whole of one may be megabytes, which the event loop must not hash."""
    return kind, len(url), url[:_END], url[-_END:]


class Fetcher:
    """Fetches under one policy. Make it inside a running event loop, close it there.

    ``resolver`` replaces the system's name resolution in tests.
    """

    def __init__(self, policy: MediaPolicy, resolver: Resolver | None = None, metrics: Metrics | None = None) -> None:
        self._policy = policy
        self._metrics = metrics
        self._networks = parse_networks(policy.allowed_networks)
        self._connector = aiohttp.TCPConnector(
            resolver=_JudgingResolver(resolver or ThreadedResolver(), self._networks), use_dns_cache=False, limit=64
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # one limit over all hops instead
            trust_env=False,  # a proxy would resolve names itself
            auto_decompress=False,  # no decompression bombs
            headers={"User-Agent": "smg-server", "Accept": "*/*", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def fetch_all(self, wanted: Sequence[Wanted]) -> list[Encoded]:
        """Bytes of all items, in order; equal URLs are fetched once. The first failure cancels the rest.

        Raises:
            GatewayError: status 400, with ``param`` naming the item: ``invalid_value``, ``media_not_allowed``,
                ``media_unreachable``, ``media_timeout`` or ``media_too_large``.
        """
        if len(wanted) > self._policy.max_items:
            raise refuse("media_too_large", f"a request may carry at most {self._policy.max_items} media items", None)
        gate = asyncio.Semaphore(self._policy.concurrency)
        tasks: list[asyncio.Task[Encoded]] = []
        alike: dict[Hashable, list[tuple[str, asyncio.Task[Encoded]]]] = {}
        total = 0

        async def limited(item: Wanted) -> Encoded:
            nonlocal total
            async with gate:
                data = await self.fetch(item.part, item.param)
            total += len(data)
            if total > self._policy.max_total_bytes:
                message = f"the media of a request may have at most {self._policy.max_total_bytes} bytes together"
                raise refuse("media_too_large", message, item.param)
            return data

        order: list[asyncio.Task[Encoded]] = []
        for item in wanted:
            url = item.part.url
            known = [] if url is None else alike.setdefault(_likeness(item.part.kind, url), [])
            task = next((task for other, task in known if other == url), None)
            if task is None:
                task = asyncio.create_task(limited(item))
                tasks.append(task)
                if url is not None:
                    known.append((url, task))
            order.append(task)
        try:
            return await asyncio.gather(*order)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def fetch(self, part: MediaPart, param: str | None = None) -> Encoded:
        """Bytes of one item. Raises as ``fetch_all`` does."""
        if part.data is not None:
            limit = self._policy.limit(part.kind)
            if len(part.data) > limit:
                raise too_large(part.kind, limit, param)
            return part.data
        if not part.url:
            raise refuse("invalid_value", f"the {part.kind} has neither a URL nor data", param)
        scheme = part.url[:8].partition(":")[0].lower()
        if scheme == "data":
            return await read_data_url(part.url, part.kind, self._policy.limit(part.kind), param)
        if scheme == "file":
            return await read_file_url(part.url, part.kind, self._policy, param)
        if scheme not in ("http", "https"):
            raise refuse("invalid_value", "the URL must start with http://, https:// or data:", param)
        try:
            started = clock.monotonic()
            async with asyncio.timeout(self._policy.timeout_secs or None):
                data = await self._download(part.url, part.kind, param)
        except TimeoutError:
            message = f"fetching the {part.kind} took longer than {self._policy.timeout_secs:g} seconds"
            raise refuse("media_timeout", message, param) from None
        if self._metrics is not None:
            self._metrics.mm_fetch_seconds.observe(clock.monotonic() - started, part.kind)
            self._metrics.mm_fetch_bytes_total.inc(part.kind, amount=len(data))
        return data

    async def _download(self, text: str, kind: str, param: str | None) -> bytes:
        url = self._checked(text, param)
        for _ in range(self._policy.max_redirects + 1):
            try:
                async with self._session.get(url, allow_redirects=False) as response:
                    if response.status not in _REDIRECTS:
                        return await self._body(response, kind, param)
                    target = response.headers.get("Location")
                if not target:
                    raise refuse("media_unreachable", f"fetching the {kind} failed: a redirect to nowhere", param)
                url = self._checked(target, param, url)
            except _Refused as error:
                raise refuse("media_not_allowed", f"the URL's host is not allowed: {error}", param) from None
            except aiohttp.ClientConnectorDNSError as error:
                raise refuse("media_unreachable", "the URL's host can't be resolved", param, repr(error)) from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise refuse("media_unreachable", f"fetching the {kind} failed", param, repr(error)) from None
        raise refuse("media_unreachable", f"more than {self._policy.max_redirects} redirects", param)

    def _checked(self, text: str, param: str | None, base: URL | None = None) -> URL:
        """Parse one URL (a redirect's target relative to ``base``) and judge everything but resolved addresses."""
        # Parsers disagree on these characters, and a URL that two of them read differently is an attack.
        if not text or "\\" in text or any(ord(char) <= 0x20 or ord(char) == 0x7F for char in text):
            raise refuse("invalid_value", "the URL contains spaces, backslashes or control characters", param)
        try:
            url = URL(text) if base is None else base.join(URL(text))
            host = url.host
            port = url.port
        except ValueError:
            raise refuse("invalid_value", "the URL is malformed", param) from None
        if url.scheme not in ("http", "https"):
            raise refuse("media_not_allowed", "only http and https URLs are fetched", param)
        if not host or not port:
            raise refuse("invalid_value", "the URL names no host", param)
        if url.user is not None or url.password is not None:
            raise refuse("media_not_allowed", "a URL must not carry credentials", param)
        domains = self._policy.allowed_domains
        if domains is not None and host.lower().rstrip(".") not in domains:
            raise refuse("media_not_allowed", f"the host {host} is not in the list of allowed domains", param)
        try:
            if literal(host) is not None:
                # aiohttp does not ask the resolver about an address.
                _judge(host, self._networks)
        except (ValueError, _Refused) as error:
            raise refuse("media_not_allowed", f"the URL's host is not allowed: {error}", param) from None
        return url

    async def _body(self, response: aiohttp.ClientResponse, kind: str, param: str | None) -> bytes:
        if not 200 <= response.status < 300:
            raise refuse("media_unreachable", f"fetching the {kind} failed: status {response.status}", param)
        if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
            raise refuse("media_unreachable", f"the server compressed the {kind} although it was told not to", param)
        limit = self._policy.limit(kind)
        if (response.content_length or 0) > limit:
            raise too_large(kind, limit, param)
        # Grows in place and gives its bytes away uncopied: what may be hundreds of megabytes is there once.
        data, size = io.BytesIO(), 0
        async for piece in response.content.iter_chunked(_CHUNK):
            size += data.write(piece)
            if size > limit:
                raise too_large(kind, limit, param)
        if not size:
            raise refuse("media_unreachable", f"the {kind} is empty", param)
        return data.getvalue()
