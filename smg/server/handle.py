"""The public Python API: a gateway in this process, or beside it as a process of its own."""

import http.client
import os
import signal
import ssl
import subprocess
import sys
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from smg.config import Settings
from smg.server.sockets import StartError, url_of


class Server:
    """A gateway to be run with ``settings``."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else Settings()

    def run(self) -> int:
        """Run in this process until SIGTERM or SIGINT; returns the exit status. For main programs.

        Raises:
            SettingsError: settings that can't work, all problems in one.
            StartError: it could not start; the message is one line.
        """
        from smg.server.run import run

        return run(self.settings)

    def start(self) -> "RunningServer":
        """Start a gateway beside this program and wait until it listens. It drains when this program ends.

        Raises:
            StartError: it could not start; the message is one line.
        """
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "smg.server", str(writer)], stdin=subprocess.PIPE, pass_fds=(writer,)
        )
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            try:
                assert process.stdin is not None
                body = msgspec.msgpack.encode(self.settings)
                process.stdin.write(len(body).to_bytes(8, "little") + body)
                process.stdin.flush()
                answer = msgspec.json.decode(pipe.readline() or b"{}", type=dict[str, int | str])
            except OSError:
                answer = {}
        port = answer.get("port")
        if not isinstance(port, int):
            process.kill()
            raise StartError(str(answer.get("error", f"the gateway ended with exit code {process.wait()}")))
        return RunningServer(process, url_of(self.settings.server, port), port)


class RunningServer:
    """A gateway in processes of its own. As a context manager it is stopped at the end.

    Attributes:
        url: where it is reached from this machine, without a path.
        port: the port it listens on.
        pid: process id of its supervisor.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, port: int) -> None:
        self._process = process
        self.url = url
        self.port = port

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self, timeout: float = 60.0) -> Self:
        """Wait until ``/readiness`` answers 200, at most ``timeout`` seconds.

        Raises:
            TimeoutError: with the reason that was given last.
            RuntimeError: the gateway has ended.
        """
        reason = "no answer"
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            code = self._process.poll()
            if code is not None:
                raise RuntimeError(f"the gateway ended with exit code {code}")
            try:
                status, reason = self._ask("/readiness")
            except OSError as error:
                reason = str(error)
            else:
                if status == 200:
                    return self
            time.sleep(0.05)
        raise TimeoutError(f"the gateway is not ready after {timeout:g} s: {reason}")

    def stop(self, timeout: float | None = None) -> int:
        """Drain and end it; after ``timeout`` seconds (None: no limit) kill it. Returns the exit status. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A failed block is in a hurry.
        self.stop(None if kind is None else 1.0)

    def _ask(self, path: str) -> tuple[int, str]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            # Its own certificate may name anything; this only asks whether it answers.
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(parts.hostname, self.port, timeout=5.0, context=context)
        else:
            connection = http.client.HTTPConnection(parts.hostname, self.port, timeout=5.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()
