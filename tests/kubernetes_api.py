"""A Kubernetes API for tests, over HTTP: lists and watches pods, forgets old versions, drops watches, goes away."""

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web


def pod(name: str, address: str | None = None, /, ready: bool = True, **fields: Any) -> dict[str, Any]:
    """A pod of the namespace ``default`` with the label ``app=vllm``; ``fields`` are of its metadata, or ``phase``."""
    phase = fields.pop("phase", "Running")
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": "vllm"}} | fields
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    status: dict[str, Any] = {"phase": phase, "conditions": conditions, "hostIP": "192.0.2.1"}
    if address is not None:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return {"metadata": meta, "spec": {"containers": [{"name": "engine"}]}, "status": status}


class Cluster:
    """The pods, and who may ask for them. All ``requests`` (of lists and watches) are kept with their query."""

    def __init__(self, token: str = "first") -> None:
        self.token = token
        self.pods: dict[str, dict[str, Any]] = {}
        self.requests: list[dict[str, str]] = []
        self.refuse: tuple[int, str] | None = None
        self.late_expiry = False
        self._version = 100
        self._oldest = 0
        self._log: list[tuple[int, dict[str, Any] | None, dict[str, Any] | None]] = []
        self._news = asyncio.Event()
        self._watches: set[web.StreamResponse] = set()
        self._runner: web.AppRunner | None = None
        self._port = 0

    # -- the server

    async def start(self) -> None:
        """Listen; after ``stop``, where it was before."""
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._pods)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods", self._pods)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away, watches and all."""
        self.drop()
        assert self._runner is not None
        await self._runner.cleanup()

    async def __aenter__(self) -> "Cluster":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def kubeconfig(self, directory: Path) -> str:
        """Write a file that tells a client where this is, and beside it one with the token; returns its path."""
        path = directory / "kubeconfig"
        self.hand_out(directory)
        cluster = {"name": "test", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}
        user = {"name": "gateway", "user": {"tokenFile": str(directory / "token")}}
        context = {"name": "here", "context": {"cluster": "test", "user": "gateway"}}
        tree = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "here"}
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **tree}))
        return str(path)

    def hand_out(self, directory: Path) -> None:
        """Write the token that is valid now, as the kubelet does (with a newline, as people do)."""
        (directory / "token").write_text(self.token + "\n")

    # -- what happens in the cluster

    def put(self, pod: dict[str, Any]) -> None:
        """ADDED or MODIFIED."""
        name = pod["metadata"]["name"]
        self._happen(self.pods.get(name), pod)
        self.pods[name] = pod

    def delete(self, name: str) -> None:
        """DELETED, after the usual grace: the pod was told to go, and is gone."""
        pod = self.pods[name]
        self.put(pod | {"metadata": pod["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        self._happen(self.pods.pop(name), None)

    def drop(self) -> None:
        """Cut the connections of all watches."""
        for response in self._watches:
            if (transport := response._req.transport) is not None:
                transport.abort()

    def expire(self) -> None:
        """Forget what has been."""
        self._oldest = self._version
        self._log.clear()

    def _happen(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        self._version += 1
        for state in (before, after):
            if state is not None:
                state["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, json.loads(json.dumps(before)), json.loads(json.dumps(after))))
        self._news.set()
        self._news = asyncio.Event()

    # -- answers

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append(query | {"path": request.path})
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized", "Unauthorized")
        if self.refuse is not None:
            return _status(self.refuse[0], "Forbidden", self.refuse[1])
        wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
        if query.get("watch") in ("true", "True", "1"):
            return await self._watch(request, wanted, int(query["resourceVersion"]))
        pods = [pod for _, pod in sorted(self.pods.items()) if _fits(pod, wanted)]
        begin = int(query.get("continue") or 0)
        end = begin + int(query.get("limit") or len(pods) or 1)
        meta = {"resourceVersion": str(self._version)} | ({"continue": str(end)} if end < len(pods) else {})
        return web.json_response({"kind": "PodList", "metadata": meta, "items": pods[begin:end]})

    async def _watch(self, request: web.Request, wanted: dict[str, str], version: int) -> web.StreamResponse:
        expired = version < self._oldest
        if expired and not self.late_expiry:
            return _status(410, "Expired", "too old resource version")
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        self._watches.add(response)
        try:
            if expired:
                await response.write(_line("ERROR", json.loads(_status(410, "Expired", "too old").text or "")))
                return response
            while True:
                news = self._news
                for number, before, after in list(self._log):
                    if number > version:
                        version = number
                        if (event := _event(before, after, wanted)) is not None:
                            await response.write(event)
                bookmark = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
                await response.write(_line("BOOKMARK", bookmark))
                await news.wait()
        finally:
            self._watches.discard(response)


def _fits(pod: dict[str, Any] | None, wanted: dict[str, str]) -> bool:
    return pod is not None and wanted.items() <= (pod["metadata"].get("labels") or {}).items()


def _event(before: dict[str, Any] | None, after: dict[str, Any] | None, wanted: dict[str, str]) -> bytes | None:
    """As the API tells it to one who selects: a pod that no longer fits is deleted, in its last state that fitted."""
    if _fits(after, wanted):
        return _line("MODIFIED" if _fits(before, wanted) else "ADDED", after)
    return _line("DELETED", before) if _fits(before, wanted) else None


def _line(kind: str, what: Any) -> bytes:
    return json.dumps({"type": kind, "object": what}).encode() + b"\n"


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
    return web.json_response(body, status=code)
