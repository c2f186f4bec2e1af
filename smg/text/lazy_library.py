"""LazyLibrary: the library behind a mapped tokenizer, loaded when the native encoder hands something over."""

import asyncio
import logging
import threading
from pathlib import Path

from smg.fleet.tokenizer_files import digest
from smg.text.config_files import TokenizerError
from smg.text.library import Library
from smg.text.memory import give_back

log = logging.getLogger("smg.text")


class LibraryNeeded(Exception):
    """What was asked on an event loop needs the library, which is not loaded: ask again from a thread."""


class LazyLibrary:
    """Loads the tokenizer of ``directory`` once, in whichever thread needs it first.

    ``sources`` is the digest that its files must still have.
    """

    def __init__(self, directory: Path, sources: str) -> None:
        self._directory = directory
        self._sources = sources
        self._lock = threading.Lock()
        self._library: Library | None = None

    @property
    def loaded(self) -> bool:
        return self._library is not None

    def get(self, why: str) -> Library:
        """Return the library's tokenizer; loads it when nobody has. ``why`` is for the log.

        Raises:
            LibraryNeeded: it would have to be loaded, and this thread runs an event loop.
            TokenizerError: the files have gone, or are not what the mapped file was made of.
        """
        if self._library is None:
            if _on_event_loop():
                raise LibraryNeeded
            with self._lock:
                if self._library is None:
                    self._library = self._load(why)
        return self._library

    def encode(self, text: str, why: str) -> list[int]:
        """What the native encoder hands over. Raises as ``get``, and what the library raises."""
        return self.get(why).encode(text)

    def _load(self, why: str) -> Library:
        log.info("loading the tokenizers library", extra={"directory": str(self._directory), "reason": why})
        if digest(self._directory) != self._sources:
            raise TokenizerError(f"the tokenizer files in {self._directory} have changed since they were prepared")
        library = Library(self._directory)
        give_back()
        return library


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
