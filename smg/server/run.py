"""Running a gateway in this process: what ``smg-server`` and ``python -m smg.server`` share."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from smg._native.region import Region
from smg.config import Settings
from smg.security.access import Gate
from smg.server.sockets import StartError, tls_context
from smg.server.supervisor import Supervisor
from smg.telemetry.logs import configure

log = logging.getLogger("smg.server")


def run(
    settings: Settings,
    *,
    lifeline: int | None = None,
    on_listening: Callable[[int], None] = lambda _port: None,
    on_serving: Callable[[list[str]], None] = lambda _models: None,
) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status. The arguments are those of ``Supervisor``.

    Raises:
        StartError: it could not even start (port in use, certificate or state directory not usable).
    """
    configure(settings.telemetry)
    _check(settings)
    preload()
    # Imported late: both need what preload has prepared.
    from smg.control.main import run as control
    from smg.server.worker import run as worker

    def run_control(settings: Settings, region: Region, urls: Sequence[str]) -> None:
        control(settings, region, urls)

    supervisor = Supervisor(
        settings, run_control, worker, lifeline=lifeline, on_listening=on_listening, on_serving=on_serving
    )
    warning = Gate(settings.security).warning()
    if warning is not None:
        log.warning(warning)
    return supervisor.run()


def preload() -> None:
    """Import what all processes need, so that they share its pages; nothing of it may start a thread."""
    # Libraries of linear algebra start a thread per core when they are imported.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import smg.api.routes
    import smg.control.main
    import smg.pipeline.services
    import smg.server.worker  # noqa: F401


def _check(settings: Settings) -> None:
    """Find out before forking what would fail in every child."""
    tls_context(settings.server)
    directory = Path(settings.server.state_dir)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"--state-dir {str(directory)!r} cannot be made: {error.strerror}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StartError(f"--state-dir {str(directory)!r} cannot be written")
