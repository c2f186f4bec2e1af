"""Requests with media: what is refused before anything is fetched, and the way to ids and tensors (spec multimodal 1).

``smg.vision`` and what it needs (NumPy, Pillow, Numba, an HTTP client) are imported with the first request that has
media; those without cost nothing here.
"""

import asyncio
import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from smg.config.settings import Settings
from smg.core.errors import GatewayError
from smg.core.media import MediaInputs
from smg.core.request import GenerationRequest, MediaPart
from smg.engines.capabilities import VISION
from smg.engines.table import ADAPTERS
from smg.fleet.records import FleetSnapshot, ModelRecord, WorkerRecord
from smg.pipeline.media_limits import check_budget, most_items
from smg.telemetry.metrics import Metrics
from smg.text.prepare import Prepared, prepare
from smg.text.registry import TextModel

if TYPE_CHECKING:
    from smg.vision.items import Medium
    from smg.vision.service import Vision

# What can be taken, and several of it in words.
_KINDS = {"image": "images", "audio": "recordings", "video": "videos"}
_TOP_BIT = 1 << 31


class WithMedia(msgspec.Struct, frozen=True):
    """A prompt whose placeholders are expanded.

    ``routing_ids`` are its ids for who looks for equal beginnings: where features are written, numbers made of the
    item's digest stand in for the placeholder, so that prompts with different images are different.
    """

    prepared: Prepared
    inputs: MediaInputs
    routing_ids: Sequence[int]


class Media:
    """The media side of one worker process."""

    def __init__(self, settings: Settings, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._metrics = metrics
        self._vision: Vision | None = None
        self._media: dict[tuple[str, str, str], asyncio.Task[Medium | None]] = {}

    async def prepare(
        self, fleet: FleetSnapshot, record: ModelRecord, text: TextModel, request: GenerationRequest
    ) -> WithMedia:
        """Do what ``text.prepare`` does, and fetch and preprocess the media of ``request``.

        Raises:
            GatewayError: 400 naming the part: no engine or model takes it, there are too many, or it can't be had or
                read; 400 as ``text.prepare``; 503 ``overloaded``.
        """
        wanted = list(request.media())
        try:
            return await self._prepare(fleet, record, text, request, wanted)
        except GatewayError as error:
            if self._metrics is not None:
                kind = wanted[0][1].kind
                self._metrics.mm_refused_total.inc(kind if kind in _KINDS else "other", error.code)
            raise

    async def _prepare(
        self,
        fleet: FleetSnapshot,
        record: ModelRecord,
        text: TextModel,
        request: GenerationRequest,
        wanted: Sequence[tuple[str, MediaPart]],
    ) -> WithMedia:
        workers = [worker for worker in fleet.workers if {record.id, *record.aliases} & set(worker.models)]
        _check(request, wanted, workers, self._settings.media.max_items)
        media: dict[str, Medium] = {}
        for path, part in wanted:
            if part.kind not in media:
                media[part.kind] = await self._medium(record, text, path, part)
        for medium in media.values():
            paths = [path for path, part in wanted if part.kind == medium.kind]
            told = most_items(workers, medium.kind)
            limit = medium.limit if told is None else min(told, medium.limit)
            if len(paths) > limit:
                message = f"this model takes at most {limit} {_KINDS[medium.kind]} in a request"
                raise _refused(message, paths[limit])
        placeholders = {kind: medium.placeholder for kind, medium in media.items()}
        prepared = await prepare(text, replace(request, placeholders=placeholders))
        vision = await self._loaded()
        ids, inputs = await vision.inputs(list(media.values()), prepared.ids, wanted, element_type(workers))
        check_budget(workers, wanted, inputs)
        _strip(request)
        return WithMedia(replace(prepared, ids=ids), inputs, routing_ids(ids, inputs))

    async def transcribes(self, record: ModelRecord, text: TextModel) -> bool:
        """Whether the model writes down what is said, and nothing else. Raises GatewayError (400), as ``prepare``."""
        medium = await self._medium(record, text, "file", MediaPart("audio"))
        return bool(getattr(medium, "transcribes", False))

    def released(self, media: WithMedia) -> None:
        """Tell that ``media`` have been sent to their engine, and are let go of."""
        if self._vision is not None:
            tensors = [item.tensor for item in media.inputs.items if item.tensor is not None]
            self._vision.released(sum(tensor.nbytes for tensor in tensors))

    def retain(self, records: Sequence[ModelRecord]) -> None:
        """Forget the models that are none of ``records``."""
        wanted = {_key(record) for record in records}
        self._media = {key: task for key, task in self._media.items() if key[:2] in wanted}

    async def close(self) -> None:
        """Drop what waits and close connections."""
        if self._vision is not None:
            await self._vision.close()

    async def _medium(self, record: ModelRecord, text: TextModel, path: str, part: MediaPart) -> "Medium":
        key = (*_key(record), part.kind)
        task = self._media.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._media[key] = asyncio.ensure_future(self._load(record, text, part.kind))
        try:
            medium = await asyncio.shield(task)
        except GatewayError as error:
            raise GatewayError(error.code, error.message, param=path, detail=error.detail) from None
        if medium is None:
            message = f"the model '{record.id}' takes no {part.kind} input"
            raise GatewayError("multimodal_not_supported", message, param=path)
        return medium

    async def _load(self, record: ModelRecord, text: TextModel, kind: str) -> "Medium | None":
        vision = await self._loaded()
        return await vision.model(record.tokenizer_dir, record.id, text.tokenizer, kind)

    async def _loaded(self) -> "Vision":
        if self._vision is None:
            # Importing takes a good part of a second, for which the streams of others do not wait.
            try:
                await asyncio.to_thread(importlib.import_module, "smg.vision.service")
            except ModuleNotFoundError as error:
                message = "this gateway is installed without support for media (the extra 'vision')"
                raise GatewayError("multimodal_not_supported", message, detail=repr(error)) from None
        if self._vision is None:
            from smg.vision.service import Vision

            settings = self._settings
            self._vision = Vision(
                settings.media,
                settings.server.state_dir,
                settings.server.max_payload_size,
                settings.fleet.grpc_max_message_size,
                self._metrics,
            )
        return self._vision


def _strip(request: GenerationRequest) -> None:
    """Drop what the media of a prepared request were made of: a request lives as long as its answer takes.

    That there are some, and of which kinds, stays.
    """
    for message in request.messages:
        if isinstance(message.content, list):
            parts = message.content
            message.content = [MediaPart(part.kind) if isinstance(part, MediaPart) else part for part in parts]
    request.attachments = [[MediaPart(part.kind) for part in parts] for parts in request.attachments]


def check_settings(settings: Settings) -> str | None:
    """What is wrong with the media settings, None when nothing is."""
    if not settings.media.allowed_networks:
        return None
    from smg.vision.addresses import parse_networks

    try:
        parse_networks(settings.media.allowed_networks)
    except ValueError as error:
        return f"--allowed-media-networks: {error}"
    return None


def _key(record: ModelRecord) -> tuple[str, str]:
    return record.tokenizer_key or record.tokenizer_dir, record.id


def _check(
    request: GenerationRequest,
    wanted: Sequence[tuple[str, MediaPart]],
    workers: Sequence[WorkerRecord],
    most: int,
) -> None:
    kinds: dict[str, str] = {}
    for path, part in wanted:
        if part.kind not in _KINDS:
            message = f"{part.kind} input is not supported"
            raise GatewayError("multimodal_not_supported", message, param=path)
        kinds.setdefault(part.kind, path)
    needed = {*kinds, "mixed_media"} if len(kinds) > 1 else {*kinds}
    if workers and not any(worker.features is None or needed <= worker.features for worker in workers):
        blind = [kind for kind in kinds if kind in VISION]
        if blind and all(worker.labels.get("supports_vision") == "false" for worker in workers):
            message = f"the model '{request.model or workers[0].models[0]}' takes no {_KINDS[blind[0]]}"
            raise GatewayError("multimodal_not_supported", message, param=kinds[blind[0]])
        names = ", ".join(sorted({worker.runtime for worker in workers}))
        together = " in one request" if len(kinds) > 1 else ""
        message = f"the engines of this model ({names}) do not support {' and '.join(kinds)} inputs{together}"
        raise GatewayError("multimodal_not_supported", message, param=list(kinds.values())[-1])
    if len(wanted) > most:
        message = f"a request may carry at most {most} media items, but this one has {len(wanted)}"
        raise _refused(message, wanted[most][0])
    for path in _in_answers(request):
        raise _refused("an assistant message can't carry media", path)


def _in_answers(request: GenerationRequest) -> Iterator[str]:
    """Paths of media in assistant messages."""
    for index, message in enumerate(request.messages):
        if message.role == "assistant" and isinstance(message.content, list):
            media = (number for number, part in enumerate(message.content) if isinstance(part, MediaPart))
            yield from (f"messages[{index}].content[{number}]" for number in media)


def _refused(message: str, path: str) -> GatewayError:
    return GatewayError("invalid_multimodal_request", message, param=path)


def element_type(workers: Sequence[WorkerRecord]) -> str | None:
    """The element type to make tensors of: what those of the model's engines want that are sent any, float32 where they
    differ, None where none takes tensors."""
    encoded = any(worker.role == "encode" for worker in workers)
    spared = ("prefill", "decode") if encoded else ("decode",)
    wanted = {kind for worker in workers if worker.role not in spared and (kind := _wanted(worker))}
    if not wanted:
        return None
    return wanted.pop() if len(wanted) == 1 else "float32"


def _wanted(worker: WorkerRecord) -> str:
    """What ``worker`` wants: what it tells, or its contract's own; empty for one that takes no tensors."""
    adapter: Any = ADAPTERS.get(worker.runtime)
    default: str = "" if adapter is None else adapter.media_dtype
    if not default:
        return ""
    told = _ELEMENT_TYPES.get(worker.labels.get("multimodal_encoder_dtype", "").lower().removeprefix("torch."))
    return told or default


_ELEMENT_TYPES = {
    **dict.fromkeys(("float32", "fp32", "f32"), "float32"),
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
}


def routing_ids(ids: Sequence[int], inputs: MediaInputs) -> list[int]:
    """``ids`` with numbers made of each item's digest where its features go; see ``WithMedia``."""
    out = list(ids)
    for item in inputs.items:
        for offset, length in item.patches:
            # Above all token ids; eight in turn, so that any block of the index holds the whole digest.
            words = [int(item.digest[at : at + 8], 16) | _TOP_BIT for at in range(0, 64, 8)]
            out[offset : offset + length] = (words * (length // 8 + 1))[:length]
    return out
