"""Running a gateway in this process: what ``smg-server`` and ``python -m smg.server`` share."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from smg._native.region import Region
from smg.config import Settings, SettingsError
from smg.engines.table import ADAPTERS
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
        SettingsError: settings that would make every child fail (certificate, state directory, engine contract).
        StartError: it could not even start (port in use).
    """
    problems = check(settings)
    if problems:
        raise SettingsError(problems)
    configure(settings.telemetry)
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


def check(settings: Settings) -> list[str]:
    """Find out before forking what would fail in every child; returns a line per problem."""
    problems = []
    try:
        tls_context(settings.server)
    except StartError as error:
        problems.append(str(error))
    directory = Path(settings.server.state_dir)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            problems.append(f"--state-dir: {str(directory)!r} cannot be written")
    except OSError as error:
        problems.append(f"--state-dir: {str(directory)!r} cannot be made: {error.strerror}")
    if settings.fleet.backend is not None and settings.fleet.backend not in ADAPTERS:
        problems.append(f"--backend: {settings.fleet.backend!r} is not one of {', '.join(sorted(ADAPTERS))}")
    return problems
