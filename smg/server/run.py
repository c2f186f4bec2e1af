"""Running a gateway in this process: what ``smg-server`` and ``python -m smg.server`` share."""

import logging
import os
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from smg._native.region import Region
from smg.config import Settings, SettingsError
from smg.engines.finding import scheme_of
from smg.engines.table import ADAPTERS
from smg.fleet.kubernetes.api import PACKAGE as KUBERNETES
from smg.parsing.choose import check_names
from smg.pipeline.media import check_settings
from smg.security.access import Gate
from smg.security.signing import keep_key
from smg.server.crowd import raise_file_limit
from smg.server.sockets import StartError, tls_context
from smg.server.supervisor import Supervisor
from smg.telemetry.logs import configure

log = logging.getLogger("smg.server")

_HOST = re.compile(r"[\w.-]+|\[?[0-9a-fA-F:.]+\]?")
# RFC 9110, 5.6.2: a token.
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def run(
    settings: Settings,
    *,
    lifeline: int | None = None,
    on_listening: Callable[[int], None] = lambda _port: None,
    on_serving: Callable[[list[str]], None] = lambda _models: None,
) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status. The arguments are those of ``Supervisor``.

    Raises:
        SettingsError: settings that would make every child fail (certificate, state directory, engine
            contract, engine addresses, parsers, networks).
        StartError: it could not even start (port in use).
    """
    problems = check(settings)
    if problems:
        raise SettingsError(problems)
    configure(settings.telemetry)
    preload()
    raise_file_limit(settings.server.max_connections)
    keep_key(settings)
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
    problems += _addresses(settings)
    if settings.discovery.service_discovery and find_spec(KUBERNETES) is None:
        problems.append(
            "--service-discovery needs the package kubernetes-asyncio: pip install 'smg-server[kubernetes]'"
        )
    try:
        check_names(settings)
    except SettingsError as error:
        problems += error.problems
    if (problem := check_settings(settings)) is not None:
        problems.append(problem)
    return problems + _places(settings)


def _addresses(settings: Settings) -> list[str]:
    """Engine addresses of known schemes that nothing could connect to."""
    pairs, problems = settings.disaggregation, []
    named = [("--worker-urls", url) for url in settings.fleet.worker_urls]
    for flag, values in (("--prefill", pairs.prefill), ("--decode", pairs.decode), ("--encode", pairs.encode)):
        # What is no address at all was found when the settings were read.
        named += [(flag, word) for value in values for word in value.split() if "://" in word]
    for flag, url in named:
        try:
            scheme_of(url)
        except ValueError as error:
            problems.append(f"{flag}: {error}")
    return problems


def _places(settings: Settings) -> list[str]:
    """Hosts, directories and headers that could not be."""
    media, problems = settings.media, []
    if media.allowed_local_path is not None and not Path(media.allowed_local_path).is_dir():
        problems.append(f"--allowed-local-media-path: {media.allowed_local_path!r} is no directory")
    for host in media.allowed_domains:
        if not _HOST.fullmatch(host):
            problems.append(f"--allowed-media-domains: {host!r} is not a host name")
    for name in settings.server.request_id_headers:
        if not _HEADER.fullmatch(name):
            problems.append(f"--request-id-headers: {name!r} is not a header's name")
    return problems
