"""PreparedTokenizers: has each tokenizer's file made that request workers map, once per key (DESIGN 6).

Loading a large tokenizer takes seconds, holds the GIL for much of them and leaves memory behind; so it is done by a
process of its own, before workers hear of the tokenizer. Without a file they load it themselves: what goes wrong here
costs time, never a model.
"""

import asyncio
import contextlib
import logging
import sys
from pathlib import Path

import msgspec

from smg.fleet.tokenizer_files import weight
from smg.text.config_files import TokenizerError
from smg.text.mapped.folder import Folder
from smg.text.mapped.outcome import Outcome
from smg.text.tokenizer import Tokenizer

log = logging.getLogger("smg.control")

# Files of fewer bytes are loaded in some milliseconds: a process would cost more than it saves.
SMALL_BYTES = 128 << 10
# Processes at once; each takes some hundred megabytes.
MOST_AT_ONCE = 2
MAKE_SECS = 300.0


class PreparedTokenizers:
    """The files in ``folder``. ``start`` and ``close`` are called on the event loop that the others are."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._running: dict[str, asyncio.Task[int]] = {}
        self._cleaning: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Remove what has not been used for a long time."""
        self._cleaning = asyncio.get_running_loop().create_task(asyncio.to_thread(self._folder.clean))

    async def close(self) -> None:
        """Give up what is being made; nothing of it stays."""
        tasks = [*self._running.values(), *([] if self._cleaning is None else [self._cleaning])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def prepare(self, directory: Path, key: str) -> int:
        """Return the size of the vocabulary when the file is there, cannot be, or need not be.

        Raises:
            TokenizerError: the tokenizer cannot be loaded, or the process that tried has died or took too long.
        """
        if await asyncio.to_thread(weight, directory) < SMALL_BYTES:
            return await asyncio.to_thread(lambda: Tokenizer(directory).size)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.get_running_loop().create_task(self._prepare(directory, key))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    async def attempt(self, directory: Path, key: str) -> None:
        """As ``prepare``, for models that are served all the same when it fails."""
        try:
            if await asyncio.to_thread(weight, directory) >= SMALL_BYTES:
                await self.prepare(directory, key)
        except (TokenizerError, OSError) as error:
            log.warning("a tokenizer could not be prepared", extra={"key": key, "error": str(error)})

    def _forget(self, key: str, done: asyncio.Task[int]) -> None:
        self._running.pop(key, None)
        if not done.cancelled():
            # Everybody who waited may have gone.
            done.exception()

    async def _prepare(self, directory: Path, key: str) -> int:
        mapped = await asyncio.to_thread(self._folder.open, key)
        if mapped is not None:
            return mapped.head.facts.size
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._folder.path.mkdir, parents=True, exist_ok=True)
        async with self._slots:
            outcome = await _make(directory, key, self._folder.file(key))
        if outcome.error:
            raise TokenizerError(outcome.error)
        if outcome.unwritten:
            log.warning("a prepared tokenizer cannot be written", extra={"key": key, "error": outcome.unwritten})
        return outcome.size


async def _make(directory: Path, key: str, path: Path) -> Outcome:
    """Run the process to its end, or kill it."""
    command = (sys.executable, "-m", "smg.text.mapped", str(directory), key, str(path))
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=nothing, stdout=pipe)
    try:
        async with asyncio.timeout(MAKE_SECS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise TokenizerError(f"preparing it took longer than {MAKE_SECS:g} seconds") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(output, type=Outcome)
    except msgspec.DecodeError:
        raise TokenizerError(f"the process that prepared it ended with status {process.returncode}") from None
