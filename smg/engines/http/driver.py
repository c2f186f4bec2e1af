"""HttpDriver: one HTTP engine as a raw backend, and what control asks of it (DESIGN 3; spec engine-contract 4.1)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import msgspec

from smg.core.backends import RawPayload, RawResponse
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engines.base import EngineInfo, EngineLoad
from smg.engines.http import errors, facts, loads
from smg.engines.http.address import parse
from smg.engines.http.client import HOP_BY_HOP, HttpClient, Response

log = logging.getLogger("smg.engines")

INFO_SECS = 10.0
HEALTH_SECS = 5.0
LOADS_SECS = 5.0
# What servers of a kind can do beside their routes.
_OFFERS = {"sglang": frozenset({"dp_rank", "disaggregation"})}
_MAX_DOCUMENT = 16 << 20
_MAX_REFUSAL = 64 << 10
_JSON = "application/json"
# Not the engine's to say: the gateway has its own request id, and makes its own framing where it has to.
_DROPPED = HOP_BY_HOP | {"x-request-id", "host"}


class HttpBody:
    """The body of a forwarded answer (``core.backends.RawBody``)."""

    def __init__(self, driver: "HttpDriver", response: Response) -> None:
        self._driver = driver
        self._response = response
        self._established = False

    async def read(self) -> bytes:
        """See ``RawBody``.

        Raises:
            GatewayError: ``worker_failed`` before the first byte, then ``worker_stream_failed``.
        """
        try:
            data = await self._response.read()
        except ConnectionError as error:
            self.close()
            raise errors.from_failure(error, established=self._established) from None
        self._established = True
        if not data:
            self.close()
        return data

    def close(self) -> None:
        """See ``RawBody``."""
        self._response.close()
        self._driver.forget(self)


class HttpDriver:
    """The ``RawBackend`` of one engine. Use on one event loop only.

    ``runtime`` is the kind of server (``vllm``, ``sglang``, ``openai``); empty: ``info`` finds out. ``key`` is the
    engine's own API key.

    Raises:
        ValueError: ``url`` is no HTTP engine's.
    """

    kind: Literal["raw"] = "raw"

    def __init__(self, url: str, runtime: str = "", key: str = "") -> None:
        self.url = url
        self.runtime = self._configured = runtime
        self.key = key
        self.capabilities: frozenset[str] = frozenset()
        self._client = HttpClient(parse(url))
        self._bodies: set[HttpBody] = set()
        self._retired = False

    # -- requests

    async def forward(
        self, ctx: RequestContext, method: str, path: str, headers: Mapping[str, str], body: RawPayload
    ) -> RawResponse:
        """Pass a request on; cancelling it, or closing the answer's body, closes the engine's connection.

        ``headers`` go as they are, with the engine's key beside them; a body is JSON unless they say otherwise. An
        answer that a client is to see comes back with its status, whatever that is.

        Raises:
            GatewayError: the engine is not reachable, broke off, has no room, or failed (see ``errors``).
        """
        try:
            response = await self._client.request(method, path, self._headers(headers, body), body)
        except ConnectionError as error:
            raise errors.from_failure(error) from None
        if errors.refuses(response.status):
            raise errors.from_status(response.status, response.header("retry-after"), await _said(response))
        answer = HttpBody(self, response)
        self._bodies.add(answer)
        dropped = _DROPPED | {name.strip().lower() for name in response.header("connection").split(",")}
        kept = [(name, value) for name, value in response.headers if name not in dropped]
        return RawResponse(response.status, kept, answer)

    def forget(self, body: HttpBody) -> None:
        """The answer is over."""
        self._bodies.discard(body)
        if self._retired and not self._bodies:
            self._client.close()

    # -- control

    async def info(self, timeout: float = INFO_SECS) -> EngineInfo:
        """Ask all that the usual servers tell of themselves; sets ``runtime`` and ``capabilities``.

        Raises:
            GatewayError: nobody answers, or nobody who tells of a model (``worker_failed``).
        """
        answers = await asyncio.gather(*(self._document(path, timeout) for path in facts.ASKED))
        documents = {path: answer for path, answer in zip(facts.ASKED, answers, strict=True) if answer is not None}
        try:
            found = facts.read(documents, self._configured)
        except ValueError as error:
            message = "the engine does not tell what it serves"
            raise GatewayError("worker_failed", message, detail=str(error), worker_fault=True) from None
        self.runtime, self.capabilities = (
            found.runtime,
            found.features | {"loads"} | _OFFERS.get(found.runtime, frozenset()),
        )
        return found.info

    async def health(self, timeout: float = HEALTH_SECS, *, thorough: bool = False) -> bool:
        """Tell whether the engine serves: ``/health``, or that it lists its models where it has no such route.

        Raises:
            GatewayError: no answer.
        """
        status, _ = await self._get("/health", timeout)
        if status in (404, 405, 501):
            status, _ = await self._get(facts.MODELS, timeout)
        return 200 <= status < 300

    async def loads(self, timeout: float = LOADS_SECS) -> list[EngineLoad]:
        """The load of each rank, or of the one this worker is. Raises GatewayError when the engine tells of none."""
        found: list[EngineLoad] = []
        if self.runtime != "vllm":
            status, body = await self._get(loads.LOADS, timeout)
            found = loads.of_loads(_json(body)) if status == 200 else []
        if not found:
            status, body = await self._get(loads.METRICS, timeout)
            found = loads.of_metrics(body.decode("utf-8", "replace")) if status == 200 else []
        if not found:
            # Not asked again until the engine is identified anew.
            self.capabilities -= {"loads"}
            raise GatewayError("not_implemented", "the engine reports no load")
        rank = self._client.address.rank
        mine = [load for load in found if load.dp_rank == rank]
        return mine if rank is not None and mine else found

    async def tokenizer_bundle(self, timeout: float = INFO_SECS) -> AsyncIterator[tuple[bytes, str]]:
        """HTTP engines have none. Raises GatewayError ``not_implemented``."""
        raise GatewayError("not_implemented", "HTTP engines do not send their tokenizer")
        yield

    def retire(self) -> None:
        """Close as soon as the running answers are over (the worker has left the fleet)."""
        self._retired = True
        if not self._bodies:
            self._client.close()

    async def close(self) -> None:
        """Break off what runs and close all connections. Idempotent."""
        self._client.close()

    # -- inside

    async def _document(self, path: str, timeout: float) -> dict[str, Any] | None:
        """A JSON object the engine has at ``path``, None where it has none."""
        status, body = await self._get(path, timeout)
        value = _json(body) if status == 200 else None
        return value if isinstance(value, dict) else None

    async def _get(self, path: str, timeout: float) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(timeout):
                response = await self._client.request("GET", path, self._headers({}, b""))
                return response.status, await response.whole(_MAX_DOCUMENT)
        except TimeoutError:
            raise errors.timeout(f"{path} took more than {timeout:g} s") from None
        except ConnectionError as error:
            raise errors.from_failure(error) from None

    def _headers(self, headers: Mapping[str, str], body: RawPayload) -> list[tuple[str, str]]:
        out = [(name, value) for name, value in headers.items()]
        if body and "content-type" not in headers:
            out.append(("content-type", _JSON))
        if self.key:
            out.append(("authorization", f"Bearer {self.key}"))
        return out


async def _said(response: Response) -> bytes:
    try:
        return await response.whole(_MAX_REFUSAL)
    except ConnectionError:
        return b""


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
