"""Make golden.json from the Hugging Face processors: ``python tests/vision/video/generate_golden.py``.

Needs transformers 5.24, torch and torchvision, nothing of this project and no network. Of tensors it keeps shape and
SHA-256, of the frames that are picked the SHA-256 of all choices for one rate.
"""

import hashlib
import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from transformers import Qwen2VLVideoProcessor, Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata
from video_cases import RATES, TENSORS, TOTALS, moving

PROCESSORS = {"qwen2": Qwen2VLVideoProcessor(), "qwen3": Qwen3VLVideoProcessor()}


def tensor(family: str, count: int, height: int, width: int) -> dict[str, object]:
    made = PROCESSORS[family](
        videos=[torch.from_numpy(moving(count, height, width)).permute(0, 3, 1, 2)],
        do_sample_frames=False,
        return_tensors="pt",
    )
    pixels = made["pixel_values_videos"].numpy().astype(np.float32)
    digest = hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()
    return {"shape": list(pixels.shape), "grid": made["video_grid_thw"].tolist(), "sha256": digest}


def picked(family: str, fps: float) -> str:
    digest = hashlib.sha256()
    for total in TOTALS:
        metadata = VideoMetadata(total_num_frames=total, fps=fps, duration=total / fps)
        indices = PROCESSORS[family].sample_frames(metadata, fps=2.0)
        digest.update(json.dumps([int(one) for one in indices]).encode())
    return digest.hexdigest()


def main() -> None:
    torch.set_num_threads(1)
    golden = {
        "tensors": {"-".join(map(str, case)): tensor(*case) for case in TENSORS},
        "picked": {family: {str(fps): picked(family, fps) for fps in RATES} for family in PROCESSORS},
    }
    Path(__file__).with_name("golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
