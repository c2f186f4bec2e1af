"""Engines as processes of their own, as operators run them."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def mock_process(*flags: str) -> Iterator[str]:
    """Run ``smg-engine mock`` and yield its address once it is ready."""
    with mock_processes(flags) as (facts,):
        yield facts["ready"]


@contextlib.contextmanager
def mock_processes(*engines: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Run ``smg-engine mock`` with each of these flags; yields what they say once they are ready.

    That is ``ready`` (the address), ``pid``, ``model``, and ``bootstrap_port`` of a prefill engine.
    """
    command = [sys.executable, "-m", "smg.cli.engine", "mock", "--port", "0"]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True))
            for flags in engines
        ]
        for process in started:
            stack.callback(process.terminate)
        facts = []
        for process in started:
            assert process.stdout is not None
            facts.append(json.loads(process.stdout.readline()))
        yield facts


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
