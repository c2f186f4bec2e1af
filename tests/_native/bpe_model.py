"""Byte-level BPE in plain Python: the rule, without regard to time."""

from itertools import pairwise


def merged(data: bytes, bytes_to_ids: list[int], merges: list[tuple[int, int, int]]) -> list[int]:
    """Merge the pair with the lowest rank, the leftmost of equals, until none is left."""
    ranks = {(left, right): (rank, both) for rank, (left, right, both) in enumerate(merges)}
    ids = [bytes_to_ids[byte] for byte in data]
    while True:
        pairs = [(*ranks[pair], at) for at, pair in enumerate(pairwise(ids)) if pair in ranks]
        if not pairs:
            return ids
        _, both, at = min(pairs, key=lambda found: (found[0], found[2]))
        ids[at : at + 2] = [both]
