"""Videos and configurations that the golden fixtures are made of; shared by their generator and their test.

Imports neither this project nor a processor, so that the generator runs where only the processors are installed.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from vision_cases import picture


def moving(count: int, height: int, width: int) -> np.ndarray:
    """``count`` different frames uint8[count, H, W, 3]."""
    return np.stack([np.roll(picture(height, width), (5 * i, 9 * i), axis=(0, 1)) for i in range(count)])


# Family, frames, height and width: odd numbers of frames, tiny, thin, and beyond both budgets.
TENSORS = [
    *((family, *size) for family in ("qwen2", "qwen3") for size in [(4, 120, 160), (6, 37, 200), (8, 300, 400)]),
    *(("qwen3", *size) for size in [(5, 64, 96), (7, 20, 30), (10, 400, 640)]),
    ("qwen2", 4, 900, 1200),
]
RATES = (1.0, 2.0, 7.5, 23.976, 24.0, 25.0, 29.97, 30.0, 60.0)
TOTALS = (*range(4, 200), *range(201, 3000, 37))
