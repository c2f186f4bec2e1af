"""Time, in one place so that tests can move it.

``monotonic`` is for durations and deadlines (seconds), ``wall`` for anything a client or a log shows (Unix seconds).
"""

import time

monotonic = time.monotonic
wall = time.time


def created() -> int:
    """Return the Unix time in whole seconds, as the ``created`` fields of the client dialects want it."""
    return int(time.time())
