"""Names of repositories on the hub, as they are given where a path might be."""

import re
from pathlib import Path

import msgspec

_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_FILES = (".json", ".gguf", ".model", ".tiktoken", ".jinja")


class HubName(msgspec.Struct, frozen=True):
    """A repository, and the branch, tag or commit asked for (None: ``main``)."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def hub_name(text: str) -> HubName | None:
    """Read ``org/name`` or ``org/name@revision``; None for anything else, and for what is there on disk."""
    found = _NAME.fullmatch(text)
    if found is None or text.endswith(_FILES) or Path(text).exists():
        return None
    return HubName(found["repo"], found["revision"])
