"""A request that is passed on as it is: what has to be read of its body, and what is patched (DESIGN 3, raw)."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from smg.core.backends import RawPayload, RawResponse
from smg.core.context import RequestContext
from smg.core.request import Hints
from smg.engines.http.fields import Fields
from smg.fleet.records import ModelRecord, WorkerRecord
from smg.routing.index.cost import BYTES_PER_TOKEN
from smg.routing.router import Query

# Members that make the prompt, in the order in which templates put them.
_PROMPT = ("tools", "system", "instructions", "messages", "input", "prompt", "text", "input_ids")
# Where prompts are longer they are videos, and who begins with so many equal bytes holds the same one. To copy and hash
# all of it would hold up every stream.
_MOST_TEXT = 4 << 20
# Dialects whose streams tell the usage only to who asks.
_ASK_FOR_USAGE = frozenset({"openai_chat", "openai_completions"})
# Headers that mean something to an engine. A client's own credentials are for the gateway and stay here.
_FORWARDED = frozenset(
    {
        *("x-correlation-id", "x-smg-routing-key"),
        *("anthropic-version", "anthropic-beta"),
    }
)
_FORWARDED_PREFIX = "x-request-id-"


class Call(Protocol):
    """What passing a request on takes, whatever its body is made of."""

    model: ModelRecord
    paths: tuple[str, ...]
    feature: str
    headers: dict[str, str]
    stream: bool
    hide_usage: bool

    @property
    def asked(self) -> str:
        """What the client calls the model: more than its id where a worker serves whatever it is asked for."""
        ...

    def query(self) -> Query:
        """What routing gets to see."""
        ...

    def body(self, worker: WorkerRecord, more: Mapping[str, Any] | None = None) -> RawPayload:
        """The body for ``worker``, with the members ``more`` where it can have any."""
        ...


class RawCall(msgspec.Struct):
    """One such request. ``paths`` are where engines may serve it; with ``hide_usage`` the gateway has asked for a usage
    event that the client did not want."""

    model: ModelRecord
    fields: Fields
    paths: tuple[str, ...]
    feature: str
    headers: dict[str, str]
    hints: Hints = Hints()
    stream: bool = False
    hide_usage: bool = False

    @property
    def asked(self) -> str:
        return self.fields.text("model") or self.model.id

    def query(self) -> Query:
        """What routing gets to see: the prompt as the bytes it is sent in, or its ids where it is ids.

        The bytes of a conversation begin like those of its earlier turns; which engine holds a prefix shows in them as
        well as in a rendered prompt, and images count too.
        """
        needs = frozenset({self.feature})
        ids = _ids(self.fields)
        if ids:
            return Query(self.model.id, ids, hints=self.hints, tokens=len(ids), needs=needs)
        text, size = _beginning(self.fields)
        return Query(self.model.id, text=text, hints=self.hints, tokens=size // BYTES_PER_TOKEN, needs=needs)

    def body(self, worker: WorkerRecord, more: Mapping[str, Any] | None = None) -> bytes:
        """The body for ``worker``: the model by the name it has there, and the members ``more``; all else as the client
        wrote it."""
        given = self.fields.text("model")
        if given and (name := name_for(worker, self.model, given)) != given:
            self.fields.put("model", name)
        return self.fields.body_with(more or {})


def name_for(worker: WorkerRecord, model: ModelRecord, given: str) -> str:
    """The name by which ``worker`` knows ``model``, which a client has called ``given``."""
    if given in worker.models:
        return given
    names = {model.id, *model.aliases}
    return next((name for name in worker.models if name in names), model.id)


def ask_for_usage(call: RawCall, dialect: str) -> None:
    """Have the engine tell the usage at the end of a stream, for the gateway's own accounts."""
    if not call.stream or dialect not in _ASK_FOR_USAGE:
        return
    options = call.fields.get("stream_options")
    options = options if isinstance(options, dict) else {}
    if not options.get("include_usage"):
        call.fields.put("stream_options", {**options, "include_usage": True})
        call.hide_usage = True


def forwarded(ctx: RequestContext, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a client's request that an engine gets (spec api-and-ops 2.2)."""
    out = {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() in _FORWARDED or name.lower().startswith(_FORWARDED_PREFIX)
    }
    out["x-request-id"] = ctx.request_id
    if ctx.trace is not None:
        # Not as the client wrote them: what is malformed begins no trace here, and is no engine's business.
        out["traceparent"] = ctx.trace.header()
        if ctx.trace.state:
            out["tracestate"] = ctx.trace.state
    return out


def is_events(answer: RawResponse) -> bool:
    """Whether an answer is a stream of server-sent events."""
    return answer.header("content-type").lower().startswith("text/event-stream")


def at_rank(rank: int | None) -> dict[str, Any]:
    """The member of a body that pins it to a data-parallel rank; none for None."""
    return {} if rank is None else {"data_parallel_rank": rank}


def ranked(headers: dict[str, str], rank: int | None) -> dict[str, str]:
    """``headers`` with the one that pins a request to a data-parallel rank."""
    return headers if rank is None else {**headers, "x-data-parallel-rank": str(rank)}


def _beginning(fields: Fields) -> tuple[str, int]:
    """The prompt as text, as far as routing looks at it, and how many bytes it has in all."""
    pieces, size = [], 0
    for name in _PROMPT:
        view = fields.view(name)
        pieces.append(view[: max(_MOST_TEXT - size, 0)])
        size += len(view)
    return b"".join(pieces).decode("utf-8", "replace"), size


def _ids(fields: Fields) -> list[int]:
    """The prompt where it is one list of token ids."""
    for name in ("prompt", "input_ids"):
        if bytes(fields.view(name)[:1]) == b"[":
            value = fields.get(name)
            if value and all(type(item) is int and 0 <= item < 2**32 for item in value):
                return list(value)
    return []
