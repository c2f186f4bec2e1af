"""Token ids as Python sees them: few as a list of ints, many as an array of unsigned ints (field case PF-01)."""

from array import array
from collections.abc import Sequence

LONG_IDS: int  # so many ids and more are an array

def compact(ids: Sequence[int]) -> Sequence[int]:
    """Return ``ids``, or an array of them if they are a list of many.

    Raises OverflowError for one of many that is no uint32.
    """

def are_ids(ids: Sequence[int]) -> bool:
    """Whether all of ``ids`` could be token ids: not negative, and of at most 31 bits. Raises TypeError for no ints."""

def joined(head: Sequence[int], tail: Sequence[int]) -> Sequence[int]:
    """Return the ids of ``head`` and ``tail``, lists or arrays, in one; maybe one of them as it is."""

def as_json(ids: array[int]) -> bytes:
    """The JSON text of many ids, an array of unsigned ints, made without an int for each and without the GIL."""
