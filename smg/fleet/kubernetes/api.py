"""PodsApi: lists and watches pods over the Kubernetes API, with the client library kubernetes-asyncio.

Only its connection, its way to credentials and its URLs are used. Pods are decoded here, and only what matters of them:
a cluster has thousands.
"""

import asyncio
import contextlib
import importlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from smg.fleet.kubernetes.pods import Metadata, Pod

PACKAGE = "kubernetes_asyncio"
# Pods of one page: it is decoded in one go.
PAGE = 100
# After so many seconds the API ends a watch, so that a dead connection is noticed and a new token is used.
WATCH_SECS = 60
_CONNECT_SECS = 10.0
_ANSWER_SECS = 30.0
# Longer than any object that the API keeps.
_LONGEST_LINE = 8 << 20
_LONGEST_MESSAGE = 300
_GONE = 410


class ApiError(Exception):
    """The API cannot be reached, or refuses; the message is for operators."""


class ExpiredError(Exception):
    """The API no longer knows what came after the version that was asked for: everything has to be listed anew."""


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[Pod] | None = None


class _Failure(msgspec.Struct):
    """The API's own account of an error (kind Status)."""

    message: str = ""
    reason: str = ""
    code: int = 0


class _Bookmark(msgspec.Struct):
    metadata: Metadata


_decode_event = msgspec.json.Decoder(Event).decode
_decode_pod = msgspec.json.Decoder(Pod).decode


class Change(msgspec.Struct, frozen=True):
    """What a watch tells: ``pod`` as it is now (None: nothing has changed), and the ``version`` to go on from."""

    version: str
    pod: Pod | None = None
    deleted: bool = False


class PodsApi:
    """Pods of ``namespace`` (None: of all) with ``labels``. Call ``close`` at the end, and after each error."""

    def __init__(self, namespace: str | None, labels: Mapping[str, str]) -> None:
        self._namespace = namespace
        self._selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        self._client: Any = None

    async def list_all(self) -> tuple[list[Pod], str]:
        """All pods, and the version they are of.

        Raises:
            ApiError: as it says.
            ExpiredError: the pods changed too much while they were listed.
        """
        pods: list[Pod] = []
        after = ""
        while True:
            options = {"limit": PAGE, "_continue": after} if after else {"limit": PAGE}
            try:
                async with self._ask(_ANSWER_SECS, **options) as answer:
                    page = msgspec.json.decode(await answer.read(), type=_List)
            except _errors() as error:
                raise ApiError(_said(error)) from None
            pods += page.items or ()
            after = page.metadata.continue_
            if not after:
                return pods, page.metadata.resource_version

    async def watch(self, version: str) -> AsyncIterator[list[Change]]:
        """What changes after ``version``, as many at a time as have come, at first none; ends when the API ends it.

        Raises:
            ApiError: as it says.
            ExpiredError: ``version`` is too old.
        """
        options = {"watch": True, "allow_watch_bookmarks": True, "timeout_seconds": WATCH_SECS}
        try:
            async with self._ask(WATCH_SECS + _ANSWER_SECS, resource_version=version, **options) as answer:
                yield []
                rest = b""
                while chunk := await answer.content.readany():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if changes := list(_changes(lines)):
                        yield changes
                    if len(rest) > _LONGEST_LINE:
                        raise ApiError("the API's answer has a line without end")
        except _errors() as error:
            raise ApiError(_said(error)) from None

    async def close(self) -> None:
        """Close all connections; the next call makes new ones, with what is then configured."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @contextlib.asynccontextmanager
    async def _ask(self, silence: float, **options: Any) -> AsyncIterator[Any]:
        answer = await self._request(silence, options)
        try:
            yield answer
        finally:
            answer.close()

    async def _request(self, silence: float, options: Mapping[str, Any]) -> Any:
        """Ask for pods; the answer's head has come, and it is a good one. ``silence``: the longest, in seconds."""
        api = (await self._connected()).CoreV1Api(self._client)
        common = {"_preload_content": False, "_request_timeout": (_CONNECT_SECS, silence), **options}
        if self._selector:
            common["label_selector"] = self._selector
        if self._namespace is None:
            answer = await api.list_pod_for_all_namespaces(**common)
        else:
            answer = await api.list_namespaced_pod(self._namespace, **common)
        if answer.status != 200:
            try:
                raise _failed(answer.status, await answer.read())
            finally:
                answer.close()
        return answer

    async def _connected(self) -> Any:
        """The library's module ``client``; there is a connection, and its token is the newest."""
        library = await asyncio.to_thread(importlib.import_module, f"{PACKAGE}.client")
        configured = await asyncio.to_thread(_configuration)
        if self._client is None:
            self._client = library.ApiClient(configured)
        else:
            self._client.configuration.api_key = configured.api_key
        return library


def _configuration() -> Any:
    """Where the API is, and how to prove who asks: the file KUBECONFIG names, else the pod's own account, else
    ``~/.kube/config``. Read anew each time, because tokens are replaced. Blocking."""
    client = importlib.import_module(f"{PACKAGE}.client")
    config = importlib.import_module(f"{PACKAGE}.config")
    found = client.Configuration()
    if not os.environ.get("KUBECONFIG") and "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config(found, try_refresh_token=False)
    else:
        file = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        try:
            # It may run a program that makes tokens, and so needs a loop.
            asyncio.run(config.load_kube_config(config_file=file, client_configuration=found, persist_config=False))
        except Exception as error:
            # The library does not say what it raises for a file that is not what it should be.
            raise ApiError(f"{file} is of no use: {error}"[:_LONGEST_MESSAGE]) from None
    found.api_key = {name: value.strip() for name, value in found.api_key.items()}
    return found


def _changes(lines: list[bytes]) -> Iterator[Change]:
    for line in lines:
        if not line.strip():
            continue
        event = _decode_event(line)
        if event.type == "ERROR":
            raise _failed(0, bytes(event.object))
        if event.type == "BOOKMARK":
            yield Change(msgspec.json.decode(event.object, type=_Bookmark).metadata.resource_version)
        else:
            pod = _decode_pod(event.object)
            yield Change(pod.metadata.resource_version, pod, deleted=event.type == "DELETED")


def _failed(status: int, body: bytes) -> Exception:
    try:
        failure = msgspec.json.decode(body, type=_Failure)
    except msgspec.DecodeError:
        failure = _Failure(body.decode("utf-8", "replace"), code=status)
    code = status or failure.code
    if code == _GONE or failure.reason in ("Expired", "Gone"):
        return ExpiredError(failure.message)
    return ApiError(f"{code} {failure.reason} {failure.message}".replace("  ", " ")[:_LONGEST_MESSAGE].strip())


def _errors() -> tuple[type[Exception], ...]:
    """What goes wrong on the way to the API, and with what it sends."""
    client_error = importlib.import_module("aiohttp").ClientError
    configuration_error = importlib.import_module(f"{PACKAGE}.config").ConfigException
    return (client_error, configuration_error, OSError, TimeoutError, ValueError)


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
