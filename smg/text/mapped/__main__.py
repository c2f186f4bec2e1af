"""The process that prepares one tokenizer: ``python -m smg.text.mapped DIRECTORY KEY FILE``.

Writes ``Outcome`` as one line of JSON to its output. It steps back behind everything else of the machine, and goes when
the process that started it does.
"""

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from smg.core.background import NICENESS
from smg.engine_server.serve import die_with_parent
from smg.text.config_files import TokenizerError
from smg.text.mapped.file import write
from smg.text.mapped.make import prepare
from smg.text.mapped.outcome import Outcome


def main(directory: str, key: str, path: str) -> None:
    """Write the file ``path`` and say how that went."""
    die_with_parent()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    sys.stdout.buffer.write(msgspec.json.encode(_run(Path(directory), key, Path(path))) + b"\n")


def _run(directory: Path, key: str, path: Path) -> Outcome:
    try:
        prepared = prepare(directory, key)
    except (TokenizerError, OSError) as error:
        return Outcome(error=str(error))
    size = prepared.head.facts.size
    try:
        write(path, prepared.head, prepared.sections)
    except (OSError, ValueError, OverflowError) as error:
        # Besides the disk: what a file cannot hold, such as an unpaired surrogate in a special token.
        return Outcome(size, unwritten=str(error))
    return Outcome(size)


if __name__ == "__main__":
    main(*sys.argv[1:])
