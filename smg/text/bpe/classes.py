"""The class of every code point, as the native splitter reads it."""

from functools import cache

from smg.text.bpe.unicode_runs import RUNS


@cache
def classes() -> bytes:
    """One byte per code point (1,114,112), made once per process: class and flags of word_split.pxd."""
    runs = (run.split(".") for run in RUNS.split())
    return b"".join(bytes((int(value, 16),)) * int(length, 16) for value, length in runs)
