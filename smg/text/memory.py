"""Memory that a load has used and freed, returned to the system."""

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """Return freed memory to the system (glibc; elsewhere nothing happens). Takes milliseconds, without the GIL.

    Reading a large tokenizer leaves some hundred megabytes of holes in the heap of every worker.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
