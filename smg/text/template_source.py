"""Where a model's chat template comes from (spec text-pipeline 2.1).

Order: the operator's own file, ``chat_template.json``, ``chat_template.jinja``, any other ``*.jinja`` of the directory,
``chat_template`` in ``tokenizer_config.json``. Files are read verbatim.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from smg.text.tokenizer import TokenizerError


class TemplateSource(msgspec.Struct, frozen=True):
    """Template texts of one model: ``tool_use`` is the variant for requests with tools, where the model has one."""

    default: str | None = None
    tool_use: str | None = None


def find_template(directory: Path, config: Mapping[str, Any], override: str | None = None) -> TemplateSource:
    """Find the template of the model in ``directory``; ``config`` is its tokenizer_config.json.

    Raises:
        TokenizerError: a template file that cannot be read or has no template in it.
    """
    if override is not None:
        return _from_file(Path(override))
    named = [directory / "chat_template.json", directory / "chat_template.jinja"]
    for path in [*named, *sorted(directory.glob("*.jinja"))]:
        if path.is_file():
            return _from_file(path)
    return _from_value(config.get("chat_template"))


def _from_file(path: Path) -> TemplateSource:
    try:
        text = path.read_bytes().decode("utf-8")
        if path.suffix != ".json":
            return TemplateSource(text)
        value = msgspec.json.decode(text)
    except (OSError, UnicodeError, msgspec.DecodeError) as error:
        raise TokenizerError(f"chat template {path} cannot be read: {error}") from error
    found = _from_value(value.get("chat_template") if isinstance(value, dict) else value)
    if found.default is None:
        raise TokenizerError(f"chat template {path} has no template in it")
    return found


def _from_value(value: Any) -> TemplateSource:
    """A template text, or the list form ``[{name, template}]``."""
    if isinstance(value, str):
        return TemplateSource(value)
    if not isinstance(value, list):
        return TemplateSource()
    entries = [entry for entry in value if isinstance(entry, dict)]
    named = {str(entry.get("name")): entry["template"] for entry in entries if isinstance(entry.get("template"), str)}
    default = named.get("default", next(iter(named.values()), None))
    return TemplateSource(default, named.get("tool_use"))
