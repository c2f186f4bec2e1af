"""Choosing a grid of tiles by its aspect ratio, as InternVL introduced it and Phi-4 took it over."""

import math
from functools import lru_cache


@lru_cache(maxsize=64)
def _grids(least: int, most: int) -> tuple[tuple[int, int], ...]:
    """(columns, rows) of all grids with ``least`` to ``most`` tiles, fewest tiles first, then fewest columns."""
    pairs = ((i, j) for i in range(1, most + 1) for j in range(1, most // i + 1) if i * j >= least)
    return tuple(sorted(pairs, key=lambda grid: (grid[0] * grid[1], grid[0])))


def closest_grid(height: int, width: int, tile: int, least: int, most: int) -> tuple[int, int]:
    """(columns, rows) of the grid whose aspect ratio is closest to the image's.

    Of equally close ones the larger is taken as long as the image has more than half of its pixels.
    """
    best, best_difference = (1, 1), math.inf
    for columns, rows in _grids(least, most):
        difference = abs(width / height - columns / rows)
        if difference < best_difference:
            best, best_difference = (columns, rows), difference
        elif difference == best_difference and width * height > 0.5 * tile * tile * columns * rows:
            best = (columns, rows)
    return best
