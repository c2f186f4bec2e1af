"""Images per second of Qwen2-VL preprocessing, JPEG in and patches out, beside the Hugging Face processors.

``python -m benchmarks.vision [--json]``. Each of ``threads`` threads decodes and preprocesses images one after the
other, as request workers do; every contestant uses one thread per image, so that the numbers compare. The others' JPEG
is decoded by Pillow, as their users do. A contestant that can't be imported (transformers, torch) is left out.
``max_abs_err`` is the largest difference between our tensor and the slow processor's.
"""

import io
import json as json_module
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from smg.vision import jit
from smg.vision.config import parse_config
from smg.vision.decode import decode_image
from smg.vision.families.base import encode
from smg.vision.families.qwen_vl import Qwen2VL

SIZES = ((768, 1024), (1080, 1920), (3024, 4032))
THREADS = (1, 2)
SECONDS = 1.0
REPEATS = 3

Contestant = Callable[[bytes], Any]


def _ours() -> Contestant:
    state = os.environ.get("SMG_STATE_DIR") or str(Path(tempfile.gettempdir()) / "smg-bench")
    if not jit.warm(state):
        print("Numba is missing: this measures the plain path", file=sys.stderr)
    family = Qwen2VL(parse_config({}), "pillow")
    return lambda data: encode(family, [decode_image(data).pixels]).tensor


def _theirs(name: str) -> Contestant | None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers

        processor = getattr(transformers, name)()
        if not name.endswith("Pil"):
            import torch

            torch.set_num_threads(1)
    except (ImportError, AttributeError):
        return None
    kind = "np" if name.endswith("Pil") else "pt"

    def process(data: bytes) -> Any:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return processor(images=[image], return_tensors=kind)["pixel_values"]

    return process


def _photograph(height: int, width: int) -> bytes:
    """JPEG of what compresses like a photograph: soft shapes with a little noise, some 2 bits a pixel."""
    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 256, (height // 16, width // 16, 3), np.uint8))
    soft = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    image = np.clip(soft + random.integers(-6, 7, soft.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(image).save(out, "JPEG", quality=90)
    return out.getvalue()


def _rate(contestant: Contestant, data: bytes, threads: int) -> float:
    """Images per second over ``threads`` threads, the median of ``REPEATS`` windows of ``SECONDS``."""
    contestant(data)

    def work(until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            contestant(data)
            done += 1
        return done

    rates = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            start = time.perf_counter()
            counts = list(pool.map(work, [start + SECONDS] * threads))
            rates.append(sum(counts) / (time.perf_counter() - start))
    return round(statistics.median(rates), 2)


def run(json: bool) -> dict[str, Any]:
    """Measure, print a table or (``json``) one JSON object, and return it: ``{"cases": [{size, threads, …}]}``."""
    ours, fast, slow = _ours(), _theirs("Qwen2VLImageProcessor"), _theirs("Qwen2VLImageProcessorPil")
    cases: list[dict[str, Any]] = []
    for height, width in SIZES:
        data = _photograph(height, width)
        error = None if slow is None else float(np.abs(ours(data) - slow(data)).max())
        for threads in THREADS:
            case = {
                "size": f"{width}x{height}",
                "threads": threads,
                "ours_img_s": _rate(ours, data, threads),
                "hf_fast_img_s": None if fast is None else _rate(fast, data, threads),
                "hf_slow_img_s": None if slow is None else _rate(slow, data, threads),
                "max_abs_err": error,
            }
            cases.append(case)
            if not json:
                print("  ".join(f"{key} {value}" for key, value in case.items()), flush=True)
    result = {"cases": cases}
    if json:
        print(json_module.dumps(result))
    return result


if __name__ == "__main__":
    run("--json" in sys.argv[1:])
