"""Tokenizers: fetches each model's tokenizer once and again when its engine came back (single flight per model)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from smg.config.settings import ModelSettings, of_model
from smg.engines.base import Driver, EngineInfo
from smg.fleet.registry import Registry
from smg.fleet.tokenizer_source import TokenizerError, find

log = logging.getLogger("smg.fleet")

_FIRST_RETRY_SECS = 2.0
_LONGEST_RETRY_SECS = 30.0
# How often it is looked whether files that workers will load are still there.
_LOOK_SECS = 5.0

Engines = Callable[[str], Sequence[tuple[Driver, EngineInfo]]]
# (directory, key): called before workers hear of a tokenizer; does what makes it cheap for them to load.
Prepare = Callable[[Path, str], Awaitable[None]]


async def _unprepared(directory: Path, key: str) -> None:
    """Leave it to the workers."""


class Tokenizers:
    """Keeps ``tokenizer_dir``, ``tokenizer_key`` and ``tokenizer_error`` of the registry's models up to date.

    ``engines`` returns who serves a model and has told about it; ``cache`` is where bundles are kept; ``models`` are
    settings of single models.
    """

    def __init__(
        self,
        settings: ModelSettings,
        registry: Registry,
        engines: Engines,
        cache: Path,
        models: Mapping[str, ModelSettings] = MappingProxyType({}),
        prepare: Prepare = _unprepared,
    ) -> None:
        self._prepare = prepare
        self._settings = settings
        self._models = models
        self._registry = registry
        self._engines = engines
        self._cache = cache
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def want(self, model_id: str) -> None:
        """See to the model's tokenizer, unless somebody is at it already."""
        task = self._tasks.get(model_id)
        if task is None or task.done():
            self._tasks[model_id] = asyncio.get_running_loop().create_task(self._obtain(model_id))

    async def watch(self) -> None:
        """Fetch again, for ever, what somebody has removed: a worker process that starts later will want it."""
        missing: set[str] = set()
        while True:
            await asyncio.sleep(_LOOK_SECS)
            directories = {model.id: model.tokenizer_dir for model in self._registry.models if model.tokenizer_dir}
            gone = await asyncio.to_thread(_gone, directories)
            for model_id in gone:
                if model_id not in missing:
                    facts = {"model": model_id, "directory": directories[model_id]}
                    log.error("the files of a tokenizer have gone: they are fetched again", extra=facts)
                await self._restore(model_id)
            missing = gone

    async def close(self) -> None:
        """Give up what is being fetched."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _restore(self, model_id: str) -> None:
        """Fetch a known tokenizer once more. Until that is done its record stays: who has loaded it can use it."""
        record, task = self._registry.model(model_id), self._tasks.get(model_id)
        if record is None or (task is not None and not task.done()):
            return
        settings = of_model(self._settings, self._models, model_id, *record.aliases)
        if (
            settings.disable_tokenizer_autoload
            or self._registry.added_tokenizer([model_id, *record.aliases]) is not None
        ):
            return
        for driver, info in self._engines(model_id):
            try:
                found = await find(settings, driver, info, self._cache)
            except TokenizerError as failure:
                log.warning("a tokenizer cannot be fetched again", extra={"model": model_id, "error": str(failure)})
                continue
            await self._prepare(found.directory, found.key)
            self._registry.set_tokenizer(model_id, str(found.directory), found.key)
            log.info("tokenizer is ready", extra={"model": model_id, "key": found.key})
            return

    async def _obtain(self, model_id: str) -> None:
        """Try the model's engines in turn until one has a tokenizer, for as long as the model exists."""
        wait = _FIRST_RETRY_SECS
        while (record := self._registry.model(model_id)) is not None:
            added = self._registry.added_tokenizer([model_id, *record.aliases])
            if added is not None:
                await self._prepare(Path(added.directory), added.key)
                self._registry.set_tokenizer(model_id, added.directory, added.key, "", added.chat_template)
                return
            settings = of_model(self._settings, self._models, model_id, *record.aliases)
            if settings.disable_tokenizer_autoload:
                self._registry.set_tokenizer(model_id, "", "", "none has been added, and none is fetched by itself")
                return
            error = "no engine of the model is up"
            for driver, info in self._engines(model_id):
                try:
                    found = await find(settings, driver, info, self._cache)
                except TokenizerError as failure:
                    error = str(failure)
                    continue
                except Exception as failure:
                    log.exception("tokenizer fetch broke", extra={"model": model_id})
                    error = repr(failure)
                    continue
                await self._prepare(found.directory, found.key)
                self._registry.set_tokenizer(model_id, str(found.directory), found.key)
                log.info("tokenizer is ready", extra={"model": model_id, "key": found.key})
                return
            self._registry.set_tokenizer(model_id, "", "", error)
            log.warning("no tokenizer yet", extra={"model": model_id, "error": error, "retry_secs": wait})
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_RETRY_SECS)


def _gone(directories: Mapping[str, str]) -> set[str]:
    """The models whose directory is missing or empty."""
    return {model for model, path in directories.items() if not _there(Path(path))}


def _there(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except OSError:
        return False
