"""A mock engine in a process of its own that keeps its port: it can be killed, stopped for a while and come back."""

import contextlib
import json
import signal
import socket
import subprocess
import sys


class Engine:
    """Runs ``smg-engine mock`` with ``flags``; ``url`` stays the same. Whoever launches it has to ``kill`` it."""

    def __init__(self, *flags: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"grpc://127.0.0.1:{self._port}"
        self._flags = flags
        self._process: subprocess.Popen[str] | None = None

    def launch(self) -> None:
        """Start it; ``ready`` waits for that."""
        command = [sys.executable, "-m", "smg.cli.engine", "mock", "--port", str(self._port), *self._flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def ready(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["ready"]

    def start(self, *flags: str) -> None:
        """Launch it, from now on with these flags if there are any, and wait until it serves."""
        self._flags = flags or self._flags
        self.launch()
        self.ready()

    def pause(self) -> None:
        """From now on it does nothing, and reads nothing; its connections stand."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a pause."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word, also in a pause. Idempotent."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
