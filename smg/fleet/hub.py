"""Tokenizers from the Hugging Face hub (spec text-pipeline 1.2), with its own client library where that is installed.

What the hub's cache has is used as it is, without asking the hub; a revision in the name (``org/name@revision``) says
which. Only files that make or shape a tokenizer are downloaded.
"""

import logging
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from smg.config.hub_names import HubName
from smg.fleet.tokenizer_files import UnknownFormat, loadable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

log = logging.getLogger("smg.fleet")

MAX_BYTES = 500 << 20

_WANTED = (
    *("tokenizer.json", "tekken.json", "vocab.json", "merges.txt", "*.model", "*.model.v*", "*.tiktoken"),
    *("*config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.json", "*.jinja"),
)

# Where repositories keep the files of the model's own code.
_ORIGINAL = "original"

_TRUE = frozenset({"1", "on", "yes", "true"})


class HubError(Exception):
    """The hub, or its cache, has no tokenizer of that name; the text is for operators."""


def obtain(name: HubName) -> Path:
    """Return a local directory with the tokenizer of ``name``, from the cache or downloaded. Blocking.

    The environment says where: ``HF_HUB_CACHE`` or ``HF_HOME``, ``HF_ENDPOINT``, ``HF_TOKEN`` (else the stored login),
    ``HF_HUB_OFFLINE``, and the proxies.

    Raises:
        HubError: it is in neither place, must not be had, or is too large.
    """
    try:
        import huggingface_hub
    except ImportError:
        message = f"{name} is a name on the hub, which needs the package huggingface-hub (pip install huggingface-hub)"
        raise HubError(message) from None
    found = _cached(name)
    if found is not None:
        return found
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE:
        raise HubError(f"{name} is not in the hub's cache, and HF_HUB_OFFLINE is set")
    from huggingface_hub import errors

    try:
        return _download(huggingface_hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT")), name)
    except errors.GatedRepoError:
        raise HubError(f"{name} is gated: HF_TOKEN must be of an account that has been let in") from None
    except errors.RepositoryNotFoundError:
        raise HubError(f"the hub has no {name}, or HF_TOKEN may not see it") from None
    except errors.RevisionNotFoundError:
        raise HubError(f"{name.repo} has no revision {name.revision}") from None
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError, ValueError) as error:
        raise HubError(f"{name} cannot be downloaded: {error}") from error
    except Exception as error:  # the client library's own transport has errors of many kinds
        raise HubError(f"{name} cannot be downloaded: {error!r}") from error


def _cached(name: HubName) -> Path | None:
    import huggingface_hub
    from huggingface_hub import errors

    try:
        folder = huggingface_hub.snapshot_download(
            name.repo, revision=name.revision, cache_dir=_cache(), local_files_only=True, allow_patterns=list(_WANTED)
        )
        return _tokenizer_in(Path(folder))
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, UnknownFormat, OSError, ValueError):
        return None


def _download(api: "HfApi", name: HubName) -> Path:
    listed = api.model_info(name.repo, revision=name.revision, files_metadata=True).siblings or []
    wanted = {file.rfilename: file.size or 0 for file in listed if _is_wanted(file.rfilename)}
    total = sum(wanted.values())
    if total > MAX_BYTES:
        raise HubError(f"the tokenizer files of {name} are larger than {MAX_BYTES} bytes")
    log.info("downloading a tokenizer", extra={"repository": str(name), "files": len(wanted), "bytes": total})
    folder = api.snapshot_download(
        name.repo, revision=name.revision, cache_dir=_cache(), allow_patterns=sorted(wanted), max_workers=4
    )
    try:
        return _tokenizer_in(Path(str(folder)))
    except UnknownFormat:
        raise HubError(f"{name} has no tokenizer files") from None


def _is_wanted(file: str) -> bool:
    base = file.removeprefix(f"{_ORIGINAL}/")
    return "/" not in base and any(fnmatch(base, pattern) for pattern in _WANTED)


def _tokenizer_in(folder: Path) -> Path:
    """The snapshot itself, else the folder of the model's own code in it. Raises UnknownFormat."""
    try:
        loadable(folder)
        return folder
    except UnknownFormat:
        loadable(folder / _ORIGINAL)
        return folder / _ORIGINAL


def _cache() -> Path:
    given = os.environ.get("HF_HUB_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"
