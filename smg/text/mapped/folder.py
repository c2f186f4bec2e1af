"""Folder: where prepared tokenizers lie, and how they age out."""

import contextlib
import hashlib
import logging
import os
import re
import time
from pathlib import Path

from smg.text.mapped.file import Mapped, Unusable, read
from smg.text.mapped.version import VERSION

log = logging.getLogger("smg.text")

_KEY = re.compile(r"[0-9a-f]{64}")

# Files that nobody has asked for, of any version, and remains of a process that was killed while it wrote one.
UNUSED_SECS = 14 * 86400.0
REMAINS_SECS = 600.0


class Folder:
    """Below ``path``, one file for each tokenizer's key and version of the code. All methods block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, key: str) -> Path:
        """Where the file of a tokenizer is or would be."""
        name = key if _KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()
        return self.path / f"{name}-{VERSION}.tokenizer"

    def open(self, key: str) -> Mapped | None:
        """Map the tokenizer's file; None when there is none that can be used."""
        path = self.file(key)
        if not path.exists():
            return None
        try:
            mapped = read(path, key)
        except Unusable as error:
            log.warning("a prepared tokenizer cannot be used", extra={"file": str(path), "reason": str(error)})
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return mapped

    def clean(self) -> None:
        """Remove what has not been opened for a long time."""
        now = time.time()
        for path in self.path.glob("*.tokenizer"):
            _remove_older(path, now - UNUSED_SECS)
        for path in self.path.glob(".making-*"):
            _remove_older(path, now - REMAINS_SECS)


def folder_of(state_dir: str) -> Folder:
    """The folder of a gateway with this state directory."""
    return Folder(Path(state_dir).expanduser() / "tokenizers" / "prepared")


def _remove_older(path: Path, limit: float) -> None:
    with contextlib.suppress(OSError):
        if path.stat().st_mtime < limit:
            path.unlink()
