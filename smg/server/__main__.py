"""``python -m smg.server READY_FD``: a gateway started by ``Server.start`` (see ``handle.py``).

Standard input brings the settings as one length-prefixed msgpack message and stays open: its end means that the
starting program is gone, and the gateway drains. READY_FD takes one JSON line: ``{"port": …}`` or ``{"error": …}``.
"""

import os
import sys

import msgspec

from smg.config import Settings, SettingsError
from smg.server.run import run
from smg.server.sockets import StartError


def main() -> int:
    """Read the settings, run, report; returns the exit status."""
    ready = int(sys.argv[1])
    # The children must not hold the pipe open: whoever reads it may wait for its end.
    os.set_inheritable(ready, False)

    def report(message: dict[str, object]) -> None:
        os.write(ready, msgspec.json.encode(message) + b"\n")
        os.close(ready)

    source = sys.stdin.buffer
    size = int.from_bytes(source.read(8), "little")
    settings = msgspec.msgpack.decode(source.read(size), type=Settings)
    try:
        return run(settings, lifeline=source.fileno(), on_listening=lambda port: report({"port": port}))
    except StartError as error:
        report({"error": str(error)})
        return 1
    except SettingsError as error:
        report({"error": "; ".join(error.problems)})
        return 2


if __name__ == "__main__":
    sys.exit(main())
