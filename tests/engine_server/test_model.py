"""The model's logits depend on a sequence's tokens, and on nothing else that happens (see the module ``model``)."""

import numpy as np
import pytest

from smg.engine_server.llama.model import EXACT_ROWS, Logits, Model, Piece

# Several times as long as the longest piece.
PROMPT = [300 + 7 * place % 1000 for place in range(200)]


def fed(model: Model, slot: int, ids: list[int], start: int = 0, chunk: int = EXACT_ROWS) -> Logits:
    """Decode ``ids`` piece by piece from position ``start`` on; returns the logits behind the last."""
    for place in range(0, len(ids), chunk):
        piece = ids[place : place + chunk]
        rows = model.step([Piece(slot, piece, start + place, int(place + chunk >= len(ids)))])
    return rows[slot][0].copy()


@pytest.fixture
def alone(model):
    yield fed(model, 0, PROMPT)
    for slot in range(model.slots):
        model.trim(slot, 0)


@pytest.mark.parametrize("chunk", [7, 40, EXACT_ROWS - 1])
def test_the_size_of_the_pieces_does_not_matter(model, alone, chunk):
    assert np.array_equal(fed(model, 1, PROMPT, chunk=chunk), alone)


def test_a_copied_prefix_is_as_good_as_an_own_one(model, alone):
    assert model.copy(0, 1, 150) == 150
    assert np.array_equal(fed(model, 1, PROMPT[150:], start=150), alone)


def test_a_trimmed_slot_is_as_good_as_a_fresh_one(model, alone):
    assert model.trim(0, 70) == 70
    assert np.array_equal(fed(model, 0, PROMPT[70:], start=70), alone)


def test_neighbours_do_not_matter(model, alone):
    model.trim(0, 0)
    for place in range(0, len(PROMPT), EXACT_ROWS):
        mine = Piece(0, PROMPT[place : place + EXACT_ROWS], place, int(place + EXACT_ROWS >= len(PROMPT)))
        theirs = Piece(1, [900 + place] * 31, 31 * (place // EXACT_ROWS), 1)
        rows = model.step([mine, theirs])
    assert np.array_equal(rows[0][0], alone)
