"""Make golden.json of Inkling's bins: ``python tests/vision/audio/generate_golden.py``.

Needs transformers 5.24 and torch, nothing of this project and no network. Recordings are loud enough to stay as they
are: the processor does not make quiet ones louder.
"""

import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from transformers.models.inkling.feature_extraction_inkling import InklingFeatureExtractor

CASES = {"short": (0.03, 1.0), "half": (0.5, 1.0), "odd": (1.237, 1.0), "soft": (0.7, 0.1)}
CENTRES = torch.linspace(-7.0, 2.0, 16, dtype=torch.float64).to(torch.float32)


def tone(seconds: float, rate: int = 16_000, seed: int = 1) -> np.ndarray:
    """As in recordings.py, which imports more than is installed here."""
    count = round(seconds * rate)
    time = np.arange(count) / rate
    chord = sum(np.sin(2 * np.pi * hertz * time * (1 + time / 20)) for hertz in (220.0, 660.0, 1730.0))
    noise = np.random.default_rng(seed).standard_normal(count)
    quiet = np.where((time > seconds * 0.4) & (time < seconds * 0.5), 0.0, 1.0)
    return ((0.2 * chord + 0.05 * noise) * quiet).astype(np.float32)


def main() -> None:
    extractor = InklingFeatureExtractor()
    golden = {}
    for name, (seconds, gain) in CASES.items():
        logs = extractor(tone(seconds) * np.float32(gain), sampling_rate=16_000)["input_features"][0]
        bins = (torch.as_tensor(logs).clamp(-7.0, 2.0)[..., None] - CENTRES).abs().argmin(-1)
        golden[name] = {"seconds": seconds, "gain": gain, "bins": bins.tolist()}
    path = Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(golden, separators=(",", ":")).replace("},", "},\n") + "\n")


if __name__ == "__main__":
    main()
