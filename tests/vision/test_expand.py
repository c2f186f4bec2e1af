"""Placeholders to feature tokens (spec multimodal 6.1)."""

import pytest

from smg.core.errors import GatewayError
from smg.vision.expand import Anchor, Binding, check_anchors, expand
from smg.vision.families.base import Replacement

IMAGE, AUDIO, FEATURE = 7, 8, 70


def test_placeholders_are_replaced_in_order_and_positions_recorded():
    images = Anchor(
        "image", IMAGE, [Replacement([1, FEATURE, FEATURE, 2, FEATURE], FEATURE), Replacement([IMAGE], IMAGE)]
    )
    audio = Anchor("audio", AUDIO, [Replacement([AUDIO] * 3, AUDIO)])
    ids, bindings = expand([5, IMAGE, 6, AUDIO, IMAGE, 9], [images, audio])
    assert ids == [5, 1, FEATURE, FEATURE, 2, FEATURE, 6, AUDIO, AUDIO, AUDIO, IMAGE, 9]
    assert bindings == [
        Binding("image", 0, 0, (1, 5), [(2, 2), (5, 1)]),
        Binding("audio", 0, 1, (7, 3), [(7, 3)]),
        Binding("image", 1, 2, (10, 1), [(10, 1)]),
    ]


def test_a_prefix_of_the_template_belongs_to_the_item_as_far_as_there_is_one():
    anchor = Anchor("image", IMAGE, [Replacement([FEATURE], FEATURE, prefix=2)] * 2)
    _, bindings = expand([4, IMAGE, 5, 6, IMAGE], [anchor])
    assert [binding.structural for binding in bindings] == [(0, 2), (2, 3)]


def test_explicit_ranges_win_over_runs():
    anchor = Anchor("image", IMAGE, [Replacement([FEATURE, FEATURE, FEATURE], FEATURE, [(1, 2)])])
    assert expand([IMAGE], [anchor])[1][0].patches == [(1, 2)]


@pytest.mark.parametrize(
    ("ids", "replacements", "text"),
    [
        ([IMAGE, IMAGE], [Replacement([1], 1)], "more image placeholders"),
        ([5], [Replacement([1], 1)], "fewer image placeholders"),
        ([IMAGE], [Replacement([], 1)], "no valid tokens"),
        ([IMAGE], [Replacement([-1], 1)], "no valid tokens"),
        ([IMAGE], [Replacement([2], 1)], "missing"),
        ([IMAGE], [Replacement([1, 1], 1, [(1, 2)])], "outside"),
        ([IMAGE], [Replacement([1, 1], 1, [(0, 2), (1, 1)])], "overlap"),
        ([IMAGE], [Replacement([1, 1], 1, [(0, 0)])], "empty"),
    ],
)
def test_what_does_not_fit_is_refused(ids, replacements, text):
    with pytest.raises(GatewayError, match=text) as caught:
        expand(ids, [Anchor("image", IMAGE, replacements)])
    assert caught.value.code == "multimodal_prompt_contract_mismatch"
    assert caught.value.status == 400


def test_two_modalities_must_differ():
    with pytest.raises(GatewayError, match="same placeholder"):
        expand([IMAGE], [Anchor("image", IMAGE, []), Anchor("video", IMAGE, [])])


def test_a_client_that_types_the_placeholder_is_found_out_before_anything_is_fetched():
    check_anchors([1, IMAGE, 2], {"image": (IMAGE, 1), "audio": (AUDIO, 0)})
    with pytest.raises(GatewayError, match="2 image placeholders for 1 image parts"):
        check_anchors([IMAGE, IMAGE], {"image": (IMAGE, 1)})
