"""Bytes to normalised tensors: tables, windows, patches (spec multimodal 7.4, 8)."""

import numpy as np
import pytest

from smg.vision.layouts import patches, window
from smg.vision.normalise import from_bfloat16, table, to_bfloat16

MEAN, STD = (0.5, 0.25, 0.1), (0.5, 0.3, 0.2)


def planes(height, width):
    return np.random.default_rng(1).integers(0, 256, (3, height, width), dtype=np.uint8)


def test_a_patch_is_channel_time_row_column(either):
    image = planes(4 * 4, 4 * 6)
    identity = np.tile(np.arange(256, dtype=np.float32), (3, 1))
    out = np.empty((4 * 6, 3 * 2 * 16), np.float32)
    patches(image, identity, out, patch=4, merge=2, repeat=2)
    # Square (0, 0) holds patches (0,0), (0,1), (1,0), (1,1); square (0, 1) follows.
    for row, (y, x) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]):
        cut = image[:, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
        expected = np.stack([cut, cut], axis=1).reshape(-1)
        np.testing.assert_array_equal(out[row], expected)


@pytest.mark.parametrize("patch", [1, 3, 4, 7, 8, 9, 14, 16, 31])
@pytest.mark.parametrize("kind", [np.float32, np.uint16])
def test_patches_without_merging_are_in_rows(either, patch, kind):
    image = planes(2 * patch, 3 * patch)
    identity = np.tile(np.arange(256), (3, 1)).astype(kind)
    out = np.empty((6, 3 * patch * patch), kind)
    patches(image, identity, out, patch)
    for row, (y, x) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]):
        cut = image[:, y * patch : (y + 1) * patch, x * patch : (x + 1) * patch]
        np.testing.assert_array_equal(out[row].reshape(3, patch, patch), cut)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_window_is_the_normalised_part(either, precision):
    image = planes(50, 70)
    values = table(MEAN, STD, 1 / 255, "pillow", precision)
    out = np.empty((3, 20, 30), values.dtype)
    window(image, values, out, 5, 7)
    for c in range(3):
        np.testing.assert_array_equal(out[c], values[c][image[c, 5:25, 7:37]])


def test_a_window_past_the_edge_leaves_the_rest_alone(either):
    image = planes(10, 10)
    values = table(MEAN, STD, 1 / 255, "pillow")
    out = np.full((3, 8, 8), 7, np.float32)
    window(image, values, out, 6, 4)
    assert (out[:, 4:] == 7).all()
    assert (out[:, :, 6:] == 7).all()
    np.testing.assert_array_equal(out[0, :4, :6], values[0][image[0, 6:, 4:]])


def test_a_window_into_a_part_of_a_batch(either):
    image = planes(10, 12)
    values = table(MEAN, STD, 1 / 255, "pillow", "float16")
    batch = np.zeros((3, 16, 16), np.float16)
    window(image, values, batch[:, :10, :12])
    np.testing.assert_array_equal(batch[1, :10, :12], values[1][image[1]])
    assert not batch[:, 10:].any()


def test_tables_round_as_their_reference_rounds():
    slow = table(MEAN, STD, 1 / 255, "pillow")
    fast = table(MEAN, STD, 1 / 255, "torchvision")
    assert slow.shape == fast.shape == (3, 256)
    np.testing.assert_allclose(slow, fast, atol=1e-6)
    assert (slow != fast).any()
    # By hand, value 200 of the second channel: each step in float32.
    scaled = np.float32(200 * (1 / 255))
    assert slow[1, 200] == (scaled - np.float32(0.25)) / np.float32(0.3)
    assert (
        from_bfloat16(to_bfloat16(table(MEAN, STD, 1 / 255, "bfloat16")))[2, 9]
        == table(MEAN, STD, 1 / 255, "bfloat16")[2, 9]
    )


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.0, 0x3F80), (-2.0, 0xC000), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (1.0078125, 0x3F81), (0.0, 0)],
)
def test_bfloat16_rounds_to_nearest_even(value, bits):
    assert to_bfloat16(np.array([value], np.float32)).tolist() == [bits]


def test_sixteen_bit_tables_are_rounded_once():
    values = table(MEAN, STD, 1 / 255, "torchvision")
    np.testing.assert_array_equal(table(MEAN, STD, 1 / 255, "torchvision", "float16"), values.astype(np.float16))
    np.testing.assert_array_equal(table(MEAN, STD, 1 / 255, "torchvision", "bfloat16"), to_bfloat16(values))
