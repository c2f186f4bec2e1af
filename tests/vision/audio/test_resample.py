"""Resampling by torchaudio's formula, written down sample by sample in float64 (spec multimodal 9)."""

import math

import numpy as np
import pytest
from recordings import tone

from smg.vision.audio.resample import phases, resample


def by_definition(samples, source, target):
    """Each output is a sum over inputs, weighted by a windowed sinc of their distance."""
    common = math.gcd(source, target)
    old, new = source // common, target // common
    base = min(old, new) * 0.99
    count = math.ceil(len(samples) * new / old)
    out = np.zeros(count)
    places = np.arange(len(samples)) / old
    for i in range(count):
        times = (places - i / new) * base
        near = np.abs(times) < 6
        times = times[near]
        weights = np.sinc(times) * np.cos(np.pi * times / 12) ** 2 * base / old
        out[i] = weights @ samples[near].astype(np.float64)
    return out


RATES = [(48_000, 16_000), (44_100, 16_000), (8_000, 16_000), (22_050, 16_000), (16_000, 24_000), (11_025, 16_000)]


@pytest.mark.parametrize(("source", "target"), RATES)
@pytest.mark.parametrize("count", [1, 7, 440, 3001])
def test_every_sample_is_the_formula_s(source, target, count, both):
    samples = tone(1.0, source)[:count]
    made = resample(samples, source, target)
    assert (made.dtype, made.shape) == (np.float32, (math.ceil(count * target / source),))
    # Weights are float32, and some 40 products are summed up in it.
    np.testing.assert_allclose(made, by_definition(samples, source, target), rtol=0, atol=5e-6)


def test_ranges_may_be_made_by_different_threads(both):
    samples = tone(6.0, 44_100)
    ranges = []

    def split(rows, work):
        for start in range(0, rows, 7001):
            ranges.append(start)
            work(start, min(start + 7001, rows))

    np.testing.assert_allclose(resample(samples, 44_100, 16_000, split), resample(samples, 44_100, 16_000), atol=1e-6)
    assert len(ranges) > 10


def test_the_same_rate_changes_nothing():
    samples = tone(0.1)
    assert resample(samples, 16_000, 16_000) is samples


def test_weights_of_each_phase_add_up_to_the_same_loudness():
    np.testing.assert_allclose(phases(44_100, 16_000).weights.sum(axis=1), 1.0, atol=2e-3)


@pytest.mark.parametrize("source", [44_101, 383_999])
def test_rates_without_a_common_divisor_cost_no_gigabytes(source):
    found = phases(source, 16_000)
    assert found.new == 16_000
    assert found.weights.nbytes < 32 << 20


def test_odd_rates_follow_the_formula_too(both):
    samples = tone(0.05, 44_101)
    np.testing.assert_allclose(
        resample(samples, 44_101, 16_000), by_definition(samples, 44_101, 16_000), rtol=0, atol=5e-6
    )
