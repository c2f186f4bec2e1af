"""What images mean to one model: its family, configured by the files beside its tokenizer (spec multimodal 5, 6)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from blake3 import blake3

from smg.core.errors import GatewayError
from smg.vision.config import ImageConfig, parse_config
from smg.vision.families.base import Family, token_id
from smg.vision.families.siglip import Siglip, sees_with_siglip
from smg.vision.families.table import find_family
from smg.vision.filters import Flavour
from smg.vision.normalise import Precision


class Tokens(Protocol):
    """The part of a tokenizer that prompts with images need."""

    def token_id(self, text: str) -> int | None: ...

    def encode(self, text: str, add_special_tokens: bool = False) -> Sequence[int]: ...


# The parsed files of a model, by name; ``config.json`` is among them.
Files: TypeAlias = dict[str, dict[str, Any]]

_FILES = ("config.json", "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


class Vocabulary:
    """A tokenizer as families ask it."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def id(self, token: str) -> int | None:
        return self._tokens.token_id(token)

    def encode(self, text: str) -> list[int]:
        return list(self._tokens.encode(text))


class VisionModel:
    """One model's images. ``search_id`` is what its ``placeholder`` becomes in a prompt.

    ``settings`` is a digest of everything that decides what pixels become, but for the element type.
    """

    def __init__(self, family: type[Family], files: Files, tokens: Tokens, flavour: Flavour) -> None:
        """From the parsed ``files`` by name.

        Raises:
            GatewayError: ``invalid_multimodal_request`` when the vocabulary has no placeholder.
        """
        self._config = _config(files)
        self._flavour: Flavour = flavour
        self._made: dict[Precision, Family] = {}
        self._kind = family
        self.vocabulary = Vocabulary(tokens)
        self.placeholder = family.placeholder
        self.limit = family.limit
        self.search_id = token_id(self.vocabulary, family.placeholder)
        self.settings = blake3(json.dumps([family.name, flavour, files], sort_keys=True).encode()).digest()

    def family(self, precision: Precision) -> Family:
        """The family for tensors of this element type."""
        made = self._made.get(precision)
        if made is None:
            made = self._made[precision] = self._kind(self._config, self._flavour, precision)
        return made


def vision_model(name: str, files: Files, tokens: Tokens, flavour: Flavour) -> VisionModel | None:
    """The vision side of the model called ``name``; None when it takes no images. Raises GatewayError as
    ``VisionModel``."""
    family = find_family(name, files["config.json"])
    if family is None and sees_with_siglip(_config(files)):
        family = Siglip
    return None if family is None else VisionModel(family, files, tokens, flavour)


def _config(files: Files) -> ImageConfig:
    return parse_config(files["config.json"], files.get("preprocessor_config.json"), files.get("processor_config.json"))


def read_files(directory: Path) -> Files:
    """What ``directory`` has of a model's configuration. Blocking.

    Raises:
        GatewayError: ``multimodal_config_missing`` when there is no readable config.json.
    """
    files: Files = {}
    for file in _FILES:
        try:
            content = json.loads((directory / file).read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            files[file] = content
    if "config.json" not in files:
        raise GatewayError("multimodal_config_missing", "the model's config.json is not known to this gateway")
    return files
