"""Engines as processes of their own, as operators run them."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def mock_process(*flags: str) -> Iterator[str]:
    """Run ``smg-engine mock`` and yield its address once it is ready."""
    command = [sys.executable, "-m", "smg.cli.engine", "mock", "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["ready"]
        finally:
            process.terminate()
            process.wait(10)
