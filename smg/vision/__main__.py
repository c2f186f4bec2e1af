"""Compiles the media kernels ahead: ``python -m smg.vision [STATE_DIR]``.

Without an argument they are kept with the installation, for images of containers and packages; with one, below that
state directory, as the server does for itself.
"""

import contextlib
import os
import sys

from smg.core.background import NICENESS
from smg.vision import jit

if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    done = jit.warm(sys.argv[1] if len(sys.argv) > 1 else None)
    sys.exit(None if done else "the media kernels were not compiled: is the extra 'vision' installed?")
