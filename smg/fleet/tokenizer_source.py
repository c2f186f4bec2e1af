"""Where a model's tokenizer comes from (spec text-pipeline 6).

In this order: ``--tokenizer-path``, ``--model-path``, the engine's bundle, the path the engine names when it is a local
directory. A configured path may lead to a directory, a tokenizer file or a GGUF file, and must be there when it looks
like a path. A hub name (``org/name``) of ``--tokenizer-path`` is taken from the hub; one of ``--model-path`` only after
the engine, which has the files.
"""

import asyncio
import logging
from pathlib import Path

import msgspec

from smg.config.hub_names import HubName, hub_name
from smg.config.settings import ModelSettings
from smg.core.errors import GatewayError
from smg.engines.base import Driver, EngineInfo
from smg.fleet.bundle import BundleError, fetch
from smg.fleet.gguf_source import unpack_gguf
from smg.fleet.hub import HubError, obtain
from smg.fleet.tokenizer_files import UnknownFormat, digest, loadable, loadable_file

log = logging.getLogger("smg.fleet")


class Tokenizer(msgspec.Struct, frozen=True):
    """Directory and content digest of a tokenizer."""

    directory: Path
    key: str


class TokenizerError(Exception):
    """No source has a tokenizer; the text names each and why, for operators."""


async def find(settings: ModelSettings, driver: Driver, info: EngineInfo, cache: Path) -> Tokenizer:
    """Return the tokenizer of the model that ``info`` describes, from the first source that has one.

    Raises:
        TokenizerError: none has.
    """
    if settings.tokenizer_path is not None:
        return await asyncio.to_thread(at_path, "--tokenizer-path", settings.tokenizer_path, cache)
    name = None if settings.model_path is None else hub_name(settings.model_path)
    if settings.model_path is not None and name is None:
        return await asyncio.to_thread(at_path, "--model-path", settings.model_path, cache)
    if "tokenizer_bundle" in driver.capabilities:
        try:
            bundle = await fetch(driver.tokenizer_bundle(), cache)
            return Tokenizer(bundle.directory, bundle.digest)
        except GatewayError as error:
            reason = f"the engine sends no tokenizer bundle ({error.detail or error.message})"
        except (BundleError, OSError) as error:
            reason = str(error)
    else:
        reason = "the engine has no tokenizer bundle"
    for path in (info.tokenizer_path, info.model_path):
        found = await asyncio.to_thread(_local, Path(path)) if path.startswith("/") else None
        if found is not None:
            log.info("using the engine's local tokenizer files", extra={"model": info.model_id, "reason": reason})
            return found
    if name is None:
        raise TokenizerError(reason)
    log.info("asking the hub for the tokenizer", extra={"model": info.model_id, "reason": reason})
    try:
        return await asyncio.to_thread(_from_hub, name)
    except HubError as error:
        raise TokenizerError(f"{reason}; --model-path: {error}") from None


def at_path(flag: str, text: str, cache: Path) -> Tokenizer:
    """The tokenizer at a configured path, or of a hub name. Blocking; ``flag`` is what errors begin with.

    Raises:
        TokenizerError: it leads nowhere, or to what cannot be loaded.
    """
    name = hub_name(text)
    try:
        return _local_path(text, cache) if name is None else _from_hub(name)
    except (UnknownFormat, BundleError, HubError, OSError) as error:
        raise TokenizerError(f"{flag}: {error}") from None


def _from_hub(name: HubName) -> Tokenizer:
    directory = obtain(name)
    return Tokenizer(directory, digest(directory))


def _local_path(text: str, cache: Path) -> Tokenizer:
    path = Path(text).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        bundle = unpack_gguf(path, cache)
        return Tokenizer(bundle.directory, bundle.digest)
    if path.is_file():
        path = loadable_file(path).parent
    if not path.is_dir():
        raise UnknownFormat(f"{text} is no directory, no tokenizer file, no GGUF file and no org/name of the hub")
    loadable(path)
    return Tokenizer(path, digest(path))


def _local(directory: Path) -> Tokenizer | None:
    try:
        loadable(directory)
    except UnknownFormat:
        return None
    return Tokenizer(directory, digest(directory))
