"""Every family against the Hugging Face processors: the same tensor, bit for bit (spec multimodal 15).

golden.json is made by generate_golden.py. Only the view of the whole of Phi-3 and Phi-4 is a sum of floats, whose order
torch does not define: there the bound is 2e-6, about four units in the last place.
"""

import hashlib
import importlib
import json
from pathlib import Path

import numpy as np
import PIL
import pytest
from vision_cases import CASES, REMOTE, picture, translucent

from smg.core.errors import GatewayError
from smg.vision import filters
from smg.vision.config import parse_config
from smg.vision.families.base import encode

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text("utf-8"))
PILLOW = int(PIL.__version__.split(".")[0])
VIEW_BOUND = 2e-6
ALL = [*CASES, *REMOTE]
MODULES = (
    "qwen_vl",
    "llava",
    "llava_next",
    "pixtral",
    "gemma3",
    "llama4",
    "kimi",
    "phi",
    "internvl",
    "idefics3",
    "inkling",
    "siglip",
    "mllama",
)
# Processors of these have a batch of requests around the images.
NESTED = ("Idefics3", "SmolVLM", "Mllama")
# Names on the wire that are not the processor's.
NAMES = {"KimiK25": {"image_grid_thw": "grid_thws"}, "Inkling": {"num_patches": "tokens_per_item"}}


def family(case):
    for module in MODULES:
        found = getattr(importlib.import_module(f"smg.vision.families.{module}"), case.family, None)
        if found is not None:
            return found(parse_config({}, case.config), case.flavour)
    raise AssertionError(case.family)


def digest(tensor):
    return hashlib.sha256(np.ascontiguousarray(tensor, np.float32).tobytes()).hexdigest()


def samples(tensor, count):
    flat = np.ascontiguousarray(tensor, np.float32).reshape(-1)
    return flat[np.linspace(0, flat.size - 1, count).astype(int)]


@pytest.fixture
def pillow_13(monkeypatch):
    """The fixtures were made with Pillow 13, whose rule for the order of the passes differs from earlier ones."""
    monkeypatch.setattr(filters, "_pillow_picks_order", lambda: True)


def check(case, sizes):
    ours = family(case)
    for height, width in sizes:
        expected = GOLDEN[case.name][f"{height}x{width}"]
        where = f"{case.name} {height}x{width}"
        image = (translucent if case.alpha else picture)(height, width)
        if expected is None:
            with pytest.raises(GatewayError):
                encode(ours, [image])
            continue
        got = encode(ours, [image])
        nested = [1] if case.family in NESTED else []
        assert [*nested, *got.tensor.shape] == expected["shape"], where
        for name, values in expected["side"].items():
            side = got.side[NAMES.get(case.family, {}).get(name, name)]
            told = values[0] if case.family in NESTED else values
            assert (digest(side) if isinstance(values, str) else side.tolist()) == told, f"{where} {name}"
        tensor = got.tensor
        if "view" in expected:
            view = samples(tensor[0, 0], len(expected["view"]))
            np.testing.assert_allclose(view, expected["view"], rtol=0, atol=VIEW_BOUND, err_msg=where)
            tensor = tensor[0, 1:]
        np.testing.assert_array_equal(samples(tensor, 8), np.array(expected["samples"], np.float32), err_msg=where)
        assert digest(tensor) == expected["sha256"], where


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_kernels_give_the_processors_tensors(case, kernels, pillow_13):
    if case.alpha and PILLOW < 13:
        pytest.skip("the installed Pillow resizes what is translucent, and before 13 it orders the passes differently")
    check(case, case.sizes)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_plain_path_gives_them_too(case, monkeypatch):
    if case.flavour == "pillow" and PILLOW < 13:
        pytest.skip("without kernels the installed Pillow resizes, and before 13 it orders the passes differently")
    monkeypatch.setattr("smg.vision.jit._ready", None)
    few = [(37, 911), (335, 337), (300, 400)]
    check(case, [size for size in few if size in case.sizes] or case.sizes[-2:])


def test_every_case_has_a_fixture_for_every_size():
    assert {case.name: {f"{h}x{w}" for h, w in case.sizes} for case in ALL} == {
        name: set(sizes) for name, sizes in GOLDEN.items()
    }
