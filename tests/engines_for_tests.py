"""Engines as processes of their own, as operators run them."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def engine_process(kind: str, *flags: str) -> Iterator[tuple[str, int]]:
    """Run ``smg-engine KIND`` and yield its address and process id once it is ready."""
    command = [sys.executable, "-m", "smg.cli.engine", kind, "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["ready"], process.pid
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def mock_process(*flags: str) -> Iterator[str]:
    """Run ``smg-engine mock`` and yield its address once it is ready."""
    with engine_process("mock", *flags) as (address, _):
        yield address
