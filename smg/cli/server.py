"""smg-server: the gateway; ``smg-server fleet`` looks at one that runs."""

import sys
from collections.abc import Sequence

from smg._version import __version__
from smg.config import Settings, SettingsError, load
from smg.server.run import run
from smg.server.sockets import StartError, url_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``smg-server``. Exit status: 0 stopped cleanly, 2 bad settings (all are printed), 1 anything else."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["fleet"]:
        # Here, because a gateway has no use for what draws tables.
        from smg.cli import fleet

        return fleet.main(given[1:])
    try:
        settings = load(given)
        return run(
            settings,
            on_listening=lambda port: _listening(settings, port),
            on_serving=lambda models: _say(f"serving {', '.join(models)}"),
        )
    except SettingsError as error:
        for problem in error.problems:
            print(f"smg-server: {problem}", file=sys.stderr)
        return 2
    except StartError as error:
        print(f"smg-server: {error}", file=sys.stderr)
        return 1


def _listening(settings: Settings, port: int) -> None:
    count = settings.server.workers
    _say(f"{__version__} listening on {url_of(settings.server, port)} with {count} worker{'s' * (count > 1)}")


def _say(text: str) -> None:
    print(f"smg-server {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
