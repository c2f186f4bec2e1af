"""PreparedKernels: has the media kernels compiled before the first image comes, by a process of its own.

A request worker that finds them compiled loads them in a second; otherwise its first requests with media wait for
many. Gateways none of whose engines takes media spend nothing on it.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterable

from smg.fleet.records import WorkerRecord
from smg.vision import jit

log = logging.getLogger("smg.control")

MEDIA = frozenset({"image", "audio", "video"})


class PreparedKernels:
    """Those below ``state_dir``, or of the installation. Lives on one event loop."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._making: asyncio.Task[None] | None = None

    def look(self, workers: Iterable[WorkerRecord]) -> None:
        """Begin once one of ``workers`` takes media. They are compiled once at most, whatever comes of it."""
        if self._making is None and any(worker.features and worker.features & MEDIA for worker in workers):
            self._making = asyncio.get_running_loop().create_task(self._make())

    async def close(self) -> None:
        """Give up what is being compiled."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _make(self) -> None:
        if await asyncio.to_thread(jit.cached, self._state_dir):
            return
        nothing = asyncio.subprocess.DEVNULL
        command = (sys.executable, "-m", "smg.vision", self._state_dir)
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=nothing, stdout=nothing, stderr=nothing)
        except OSError as error:
            log.warning("the media kernels cannot be compiled ahead", extra={"error": str(error)})
            return
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if status:
            log.warning("the media kernels were not compiled ahead", extra={"status": status})
