"""The debug window: what the last generations were asked, what the engine wrote, and what became of it.

A single request may ask to be shown its own with the answer (header ``x-smg-debug``). Beside that, each request process
keeps so many records, as files below the state directory, so that any process can show them. They hold prompts and
answers: only their owner may read them, and only admins are shown them.
"""

import asyncio
import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from smg.core import clock
from smg.core.context import RequestContext
from smg.core.events import Event
from smg.text.tokenizer import Tokenizer

MAX_EVENTS = 5000  # of one generation
MAX_TEXT = 1 << 20  # characters of a prompt or a choice


class DebugChoice(msgspec.Struct):
    """``raw_text`` is what the engine wrote, before any parsing, and ``ids`` its token ids."""

    index: int
    raw_text: str
    ids: list[int]


class DebugSummary(msgspec.Struct):
    """``time`` is Unix seconds; ``notes`` are the facts of the access log."""

    id: str
    time: float
    endpoint: str
    model: str
    notes: dict[str, str]


class DebugRecord(DebugSummary):
    """``prompt`` is the rendered prompt with its special tokens; ``constraint`` what bound the output.

    ``events`` are those that the client's dialect was given; of a stream that needs no parsing they leave out the text.
    """

    prompt: str
    prompt_ids: list[int]
    constraint: dict[str, Any] | None
    choices: list[DebugChoice]
    events: list[dict[str, Any]]
    events_dropped: int = 0


class Pending:
    """A record whose prompt is still to be decoded, which may take a moment."""

    def __init__(self, tokenizer: Tokenizer, record: DebugRecord) -> None:
        self._tokenizer = tokenizer
        self._record = record

    def whole(self) -> DebugRecord:
        """The record with its prompt as text. Blocking: use a thread."""
        if not self._record.prompt:
            text = self._tokenizer.decode(self._record.prompt_ids, skip_special_tokens=False)
            self._record.prompt = text[:MAX_TEXT]
        return self._record


async def shown(ctx: RequestContext) -> bytes:
    """The JSON list of the records of ``ctx``'s generations, one of each prompt, once they are closed."""
    pending: list[Pending] = ctx.debug or []
    return await asyncio.to_thread(lambda: msgspec.json.encode([one.whole() for one in pending]))


class DebugWindow:
    """The records of all processes; this one writes its own ``size``. Methods read and write files: use a thread."""

    def __init__(self, directory: Path, process: int, size: int) -> None:
        self.size = size
        self._directory = directory
        self._process = process
        self._slot = 0
        for path in self._files(process):
            path.unlink(missing_ok=True)

    def keep(self, record: DebugRecord) -> None:
        """Keep ``record`` in place of the oldest."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        slot, self._slot = self._slot, (self._slot + 1) % self.size
        for path in self._directory.glob(f"{self._process}-{slot}-*.json"):
            path.unlink(missing_ok=True)
        summary = DebugSummary(record.id, record.time, record.endpoint, record.model, record.notes)
        data = msgspec.json.encode(summary) + b"\n" + msgspec.json.encode(record)
        path = self._directory / f"{self._process}-{slot}-{_name(record.id)}.json"
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)

    def summaries(self) -> list[DebugSummary]:
        """All records, the newest first."""
        found = []
        for path in self._files():
            # A record may be replaced while it is read.
            with contextlib.suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
                found.append(msgspec.json.decode(file.readline(), type=DebugSummary))
        return sorted(found, key=lambda summary: -summary.time)

    def record(self, id: str) -> bytes | None:
        """The JSON text of the newest record with this id, None when there is none (any more)."""
        paths = [path for path in self._files() if path.name.endswith(f"-{_name(id)}.json")]
        for path in sorted(paths, key=_age, reverse=True):
            with contextlib.suppress(OSError):
                return path.read_bytes().partition(b"\n")[2]
        return None

    def _files(self, process: int | None = None) -> list[Path]:
        return list(self._directory.glob(f"{'*' if process is None else process}-*.json"))


class Capture:
    """Collects the events of one generation."""

    def __init__(self) -> None:
        self.time = clock.wall()
        self.events: list[dict[str, Any]] = []
        self.dropped = 0

    def take(self, events: list[Event]) -> None:
        """More events, in their order."""
        for event in events:
            if len(self.events) < MAX_EVENTS:
                self.events.append({"type": type(event).__name__, **msgspec.to_builtins(event)})
            else:
                self.dropped += 1


def _name(id: str) -> str:
    return hashlib.blake2b(id.encode(), digest_size=12).hexdigest()


def _age(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
