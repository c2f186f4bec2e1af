"""Resampling: kernels, NumPy model and Pillow agree on every pixel (spec multimodal 7.1, 7.2)."""

import itertools
import threading
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from smg.vision import filters
from smg.vision.filters import axis, vertical_first
from smg.vision.pool import MediaPool
from smg.vision.resize import modelled, resize

PILLOW = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SIDES = st.integers(64, 300)


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def model(image, height, width, kind, flavour):
    x = axis(image.shape[1], width, kind, flavour) if width != image.shape[1] else None
    y = axis(image.shape[0], height, kind, flavour) if height != image.shape[0] else None
    return modelled(image, x, y, vertical_first(*image.shape[:2], height, width, flavour))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.tuples(st.integers(1, 300), SIDES),
    target=st.tuples(st.integers(1, 300), SIDES),
    kind=st.sampled_from(sorted(PILLOW)),
    flavour=st.sampled_from(["pillow", "torchvision"]),
    bands=st.integers(1, 4),
)
def test_kernels_equal_the_model(kernels, size, target, kind, flavour, bands):
    image = noise(*size)

    def split(rows, work):
        borders = [rows * band // bands for band in range(bands + 1)]
        for y0, y1 in itertools.pairwise(borders):
            if y0 < y1:
                work(y0, y1)

    with mock.patch("smg.vision.resize._SPLIT_FROM", 0):
        got = resize(image, *target, kind, flavour, split)
    np.testing.assert_array_equal(got, model(image, *target, kind, flavour))


@pytest.mark.parametrize("kind", sorted(PILLOW))
@pytest.mark.parametrize(
    ("size", "target"),
    [
        ((100, 120), (80, 90)),  # both smaller, width first
        ((300, 120), (80, 100)),  # both smaller, height first under Pillow 13's rule
        ((100, 120), (200, 90)),
        ((100, 120), (100, 90)),
        ((100, 120), (60, 120)),
        ((100, 120), (100, 120)),
        ((65, 64), (640, 650)),
        ((700, 700), (70, 64)),
        ((3, 2), (9, 7)),
        ((1, 1), (28, 28)),
        ((1, 2000), (28, 96)),
    ],
)
def test_pillow_flavour_is_pillow(either, kind, size, target):
    image = noise(*size)
    expected = np.asarray(Image.fromarray(image).resize(target[::-1], PILLOW[kind]))
    np.testing.assert_array_equal(resize(image, *target, kind, "pillow"), expected.transpose(2, 0, 1))


def test_the_model_is_pillow_too():
    image = noise(200, 150)
    for kind, code in PILLOW.items():
        expected = np.asarray(Image.fromarray(image).resize((90, 60), code)).transpose(2, 0, 1)
        np.testing.assert_array_equal(model(image, 60, 90, kind, "pillow"), expected)


def test_which_pass_comes_first(monkeypatch):
    monkeypatch.setattr(filters, "_pillow_picks_order", lambda: True)
    assert vertical_first(100, 100, 49, 76, "pillow")  # 51 > 2 * 24 = 48
    assert not vertical_first(100, 100, 50, 75, "pillow")  # 50 = 2 * 25
    assert not vertical_first(100, 100, 100, 50, "pillow")
    assert vertical_first(100, 100, 99, 200, "pillow")
    assert not vertical_first(100, 100, 10, 99, "torchvision")
    monkeypatch.setattr(filters, "_pillow_picks_order", lambda: False)
    assert not vertical_first(100, 100, 10, 99, "pillow")


def test_flat_colours_stay_flat_and_edges_do_not_wrap(either):
    for value in (0, 1, 254, 255):
        image = np.full((80, 90, 3), value, np.uint8)
        assert np.unique(resize(image, 130, 70, "bicubic", "pillow")).tolist() == [value]
    edge = np.zeros((80, 160, 3), np.uint8)
    edge[:, 80:] = 255
    # A cubic overshoots at an edge: the result must be clipped, not wrapped around.
    assert resize(edge, 80, 240, "bicubic", "pillow")[:, :, :100].max() <= 1


def test_weights_are_those_of_the_definition():
    halved = axis(4, 2, "bilinear", "pillow")
    assert halved.lo.tolist() == [0, 1]
    assert halved.taps.tolist() == [3, 3]
    assert halved.shift == 22
    # Distances 0.5, 0.5, 1.5 of a triangle of radius 2: weights 0.75, 0.75, 0.25, divided by their sum.
    assert halved.weights[0].tolist() == [round(3 / 7 * 2**22), round(3 / 7 * 2**22), round(1 / 7 * 2**22)]
    torch = axis(4, 2, "bilinear", "torchvision")
    assert torch.shift == 16
    assert torch.weights.max() < 1 << 15


def test_image_and_cached_weights_are_left_alone(kernels):
    image = noise(100, 100)
    before = image.copy()
    resize(image, 64, 64, "bicubic", "pillow")
    np.testing.assert_array_equal(image, before)
    with pytest.raises(ValueError, match="read-only"):
        axis(100, 64, "bicubic", "pillow").weights[0, 0] = 1


def test_kernels_are_compiled_once_for_every_kind_of_argument(kernels):
    for name in ("split_rows", "across_rows", "down_rows", "across_then_down", "down_then_across"):
        assert len(getattr(kernels, name).signatures) == 1, name
    for name in ("window_rows", "patch_blocks"):
        assert len(getattr(kernels, name).signatures) == 2, name


def test_a_large_image_is_split_over_the_pool(kernels):
    pool = MediaPool(3)
    threads = set()

    def split(rows, work):
        def noted(y0, y1):
            threads.add(threading.get_ident())
            work(y0, y1)

        pool.split(rows, noted)

    image = noise(1200, 900)
    try:
        got = resize(image, 800, 700, "bicubic", "pillow", split)
    finally:
        pool.close()
    np.testing.assert_array_equal(got, resize(image, 800, 700, "bicubic", "pillow"))
    assert threads
