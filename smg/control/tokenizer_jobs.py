"""Tokenizers that admins add by name, loaded in the background (spec api-and-ops 1.10, 4.9; text-pipeline 6)."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from smg.control.admin import Handler
from smg.core import clock, ids
from smg.core.errors import GatewayError, bad_request
from smg.fleet.records import ModelRecord, TokenizerRecord
from smg.fleet.registry import Registry
from smg.fleet.tokenizer_source import TokenizerError, at_path
from smg.text import config_files as text
from smg.text.template_source import find_template

log = logging.getLogger("smg.control")

# Tokenizers on their way at once; loading them costs memory and time.
MOST_LOADING = 2
MOST_PENDING = 100
# The registry is published in the region, which has only so much room.
MOST_ADDED = 256
# How long, and how many at most, failures can be asked for.
KEPT_SECS = 300.0
MOST_FAILED = 32
LOAD_SECS = 300.0

# The ids of tokenizers that models bring are made from the models' ids.
_NAMESPACE = uuid.UUID("6f4c1f0e-5f0a-5b0e-9d4e-6d0c3c0f7a11")


class TokenizerJobs:
    """Keeps ``registry``'s added tokenizers; ``want`` is told the models whose tokenizer should be looked for again.

    ``prepare`` (directory, key) loads a tokenizer to see that it is sound and returns the size of its vocabulary; it
    raises TokenizerError (``smg.text``).
    """

    def __init__(
        self,
        registry: Registry,
        want: Callable[[str], None],
        cache: Path,
        prepare: Callable[[Path, str], Awaitable[int]],
    ) -> None:
        self._prepare = prepare
        self._registry = registry
        self._want = want
        self._cache = cache
        self._slots = asyncio.Semaphore(MOST_LOADING)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Go on with what an earlier control process had begun."""
        for record in self._registry.tokenizers:
            if record.status in ("pending", "processing"):
                self._begin(record)

    async def close(self) -> None:
        """Give up what is being loaded; the next control process begins it again."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def operations(self) -> Mapping[str, Handler]:
        """What the admin socket can ask: ``tokenizers``, ``tokenizer_add``, ``tokenizer_delete``."""

        async def listed(_: dict[str, Any]) -> list[dict[str, Any]]:
            return self.list_all()

        async def add(request: dict[str, Any]) -> dict[str, Any]:
            record = self.add(str(request["name"]), str(request["source"]), str(request["chat_template"]))
            return {"id": record.id, "status": record.status}

        async def delete(request: dict[str, Any]) -> str:
            return self.delete(str(request["tokenizer"]))

        return {"tokenizers": listed, "tokenizer_add": add, "tokenizer_delete": delete}

    def list_all(self) -> list[dict[str, Any]]:
        """Added tokenizers, then those of models that have one of their own."""
        self._forget_failures()
        added = [{**msgspec.to_builtins(record), "origin": "added"} for record in self._registry.tokenizers]
        names = {record.name for record in self._registry.tokenizers}
        models = [_of_model(model) for model in self._registry.models if model.tokenizer_dir and model.id not in names]
        return [*added, *models]

    def add(self, name: str, source: str, chat_template: str = "") -> TokenizerRecord:
        """Begin to load ``source`` under ``name``.

        Raises:
            GatewayError: ``conflict`` (409) when the name is taken; ``invalid_value`` for a template that is not there;
                ``overloaded`` (503) when too many wait.
        """
        self._forget_failures()
        found = next((record for record in self._registry.tokenizers if record.name == name), None)
        if found is not None and found.status != "failed":
            raise GatewayError("conflict", f"there is a tokenizer '{name}' already; its id is {found.id}", param="name")
        model = self._registry.model(name)
        if found is None and model is not None and model.tokenizer_dir:
            raise GatewayError("conflict", f"the model '{name}' has brought its tokenizer already", param="name")
        if chat_template and not Path(chat_template).is_file():
            raise bad_request("chat_template_path is no file of the gateway's machine", "chat_template_path")
        if len(self._tasks) >= MOST_PENDING or len(self._registry.tokenizers) >= MOST_ADDED:
            raise GatewayError("overloaded", "too many tokenizers have been added or are being loaded")
        if found is not None:
            self._registry.drop_tokenizer(found.id)
        record = TokenizerRecord(str(ids.uuid7()), name, source, chat_template, created=clock.created())
        self._registry.put_tokenizer(record)
        self._begin(record)
        return record

    def delete(self, wanted: str) -> str:
        """Forget the added tokenizer with this name or id; returns its name. Models keep what they have in use.

        Raises:
            GatewayError: ``not_found`` (404); ``conflict`` (409) for one that a model brought.
        """
        added = self._registry.tokenizers
        record = next((one for field in ("name", "id") for one in added if getattr(one, field) == wanted), None)
        if record is None:
            if any(wanted in (entry["id"], entry["name"]) for entry in self.list_all()):
                message = f"the tokenizer '{wanted}' belongs to a model that is served; it goes when its workers go"
                raise GatewayError("conflict", message)
            raise GatewayError("not_found", f"there is no tokenizer '{wanted}'")
        task = self._tasks.pop(record.id, None)
        if task is not None:
            task.cancel()
        self._registry.drop_tokenizer(record.id)
        self._seek(record.name)
        return record.name

    def _begin(self, record: TokenizerRecord) -> None:
        task = asyncio.get_running_loop().create_task(self._load(record), name=f"tokenizer {record.name}")
        self._tasks[record.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(record.id, None))

    async def _load(self, record: TokenizerRecord) -> None:
        async with self._slots:
            self._tell(record, status="processing")
            try:
                async with asyncio.timeout(LOAD_SECS):
                    found = await asyncio.to_thread(at_path, "source", record.source, self._cache)
                    size = await self._prepare(found.directory, found.key)
                    await asyncio.to_thread(_find_template, found.directory, record.chat_template)
            except TimeoutError:
                self._fail(record, f"it took longer than {LOAD_SECS:g} seconds")
            except (TokenizerError, text.TokenizerError) as error:
                self._fail(record, str(error))
            except Exception as error:
                log.exception("loading a tokenizer broke", extra={"tokenizer": record.name})
                self._fail(record, repr(error))
            else:
                self._tell(record, status="completed", directory=str(found.directory), key=found.key, vocab_size=size)
                log.info("tokenizer has been added", extra={"tokenizer": record.name, "key": found.key})
                self._seek(record.name)

    def _fail(self, record: TokenizerRecord, error: str) -> None:
        log.warning("tokenizer cannot be added", extra={"tokenizer": record.name, "error": error})
        self._tell(record, status="failed", error=error, created=clock.created())

    def _tell(self, record: TokenizerRecord, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(record, name, value)
        self._registry.put_tokenizer(record)

    def _seek(self, name: str) -> None:
        for model in self._registry.models:
            if name == model.id or name in model.aliases:
                self._want(model.id)

    def _forget_failures(self) -> None:
        now = clock.created()
        failed = sorted(
            (one for one in self._registry.tokenizers if one.status == "failed"), key=lambda one: one.created
        )
        for index, record in enumerate(failed):
            if now - record.created > KEPT_SECS or index < len(failed) - MOST_FAILED:
                self._registry.drop_tokenizer(record.id)


def _find_template(directory: Path, chat_template: str) -> None:
    """See that there is a template where one is named."""
    find_template(directory, text.read_json(directory / "tokenizer_config.json"), chat_template or None)


def _of_model(model: ModelRecord) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid5(_NAMESPACE, model.id)),
        "name": model.id,
        "source": model.tokenizer_dir,
        "status": "completed",
        "error": "",
        "vocab_size": 0,
        "origin": "model",
    }
