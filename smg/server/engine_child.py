"""The embedded engine as a supervised child: ``smg-engine llama`` on a loopback port of its own."""

import sys
from collections.abc import Sequence

from smg.config.settings import EmbeddedSettings
from smg.server.sockets import free_port

HOST = "127.0.0.1"


class EngineCommand:
    """What to run and where it will listen. The port is chosen once, so that restarts keep the worker's URL."""

    def __init__(self, settings: EmbeddedSettings, state_dir: str) -> None:
        self.port = settings.embedded_port or free_port(HOST)
        self._settings = settings
        self._state_dir = state_dir

    @property
    def url(self) -> str:
        """The engine's address, as control takes it."""
        return f"grpc://{HOST}:{self.port}"

    def command(self) -> list[str]:
        """The command line; ``--embedded-args`` come last and win."""
        model: Sequence[str] = ()
        if self._settings.embedded_model is not None:
            model = ("--model", self._settings.embedded_model)
        return [
            *(sys.executable, "-m", "smg.cli.engine", "llama"),
            *("--host", HOST, "--port", str(self.port), "--die-with-parent"),
            *("--state-dir", self._state_dir),
            *model,
            *self._settings.embedded_args,
        ]
