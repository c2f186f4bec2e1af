"""Joining buffers, against ``bytes.join``."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.joined import join


@given(st.lists(st.binary(max_size=50)))
def test_it_is_what_bytes_join_makes(parts):
    views = [memoryview(part) if index % 2 else bytearray(part) for index, part in enumerate(parts)]
    assert join(views) == b"".join(parts)


def test_arrays_are_taken_as_they_lie_in_memory():
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert join([b"x", numbers, numbers[1:]]) == b"x" + numbers.tobytes() + numbers[1:].tobytes()


@pytest.mark.parametrize("part", ["text", None, 3])
def test_what_is_no_buffer_is_refused(part):
    with pytest.raises(TypeError):
        join([b"a", part])


def test_what_does_not_lie_in_one_piece_is_refused():
    with pytest.raises((BufferError, ValueError)):
        join([np.zeros((4, 4), np.uint8)[:, ::2]])


def test_megabytes_are_joined_as_they_are():
    parts = [bytes([number]) * (700 << 10) for number in range(3)]
    assert join(parts) == b"".join(parts)
