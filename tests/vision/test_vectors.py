"""Weighted sums of bytes: each way to compute them gives the integers of the definition."""

import numpy as np
import pytest

from smg.vision.filters import axis


def sums(source, weights, shift):
    total = (source.astype(np.int64) * weights[:, None]).sum(axis=0) + (1 << (shift - 1))
    return np.clip(total >> shift, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("way", ["products", "dots"])
@pytest.mark.parametrize("kind", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("flavour", ["pillow", "torchvision"])
@pytest.mark.parametrize(("size", "target"), [(64, 97), (64, 63), (200, 97), (9, 1), (2, 7), (1, 5)])
def test_weighted_sums_are_those_of_the_definition(kernels, way, kind, flavour, size, target):
    from numba import njit

    from smg.vision import vectors

    if way == "dots" and not vectors.DOTS:
        pytest.skip("this processor has no byte dot products")
    one = vectors.weigh_products if way == "products" else vectors.weigh_dots

    @njit
    def weigh(source, stride, weights, taps, shift, target):
        one(source, stride, weights, taps, shift, target)

    x = axis(size, target, kind, flavour)
    # Black and white next to each other make sums below 0 and above 255.
    source = np.random.default_rng(size).choice(np.array([0, 1, 127, 128, 254, 255], np.uint8), (size, 64))
    terms = x.weights if way == "products" else x.digits
    out = np.empty(64, np.uint8)
    for i, (lo, taps) in enumerate(zip(x.lo.tolist(), x.taps.tolist(), strict=True)):
        weigh(source[lo:].ctypes.data, 64, terms[i].ctypes.data, taps, x.shift, out.ctypes.data)
        assert out.tolist() == sums(source[lo : lo + taps], x.weights[i, :taps], x.shift).tolist()


@pytest.mark.parametrize("kind", ["bilinear", "bicubic", "lanczos"])
def test_digits_are_the_weights(kind):
    x = axis(31, 57, kind, "pillow")
    digits = x.digits.view(np.int8).reshape(len(x.lo), -1, 3, 4).astype(np.int64)
    whole = (digits[:, :, 0] * 256 + digits[:, :, 1]) * 256 + digits[:, :, 2]
    count = x.weights.shape[1]
    assert np.array_equal(whole.reshape(len(x.lo), -1)[:, :count], x.weights)
    assert not whole.reshape(len(x.lo), -1)[:, count:].any()
