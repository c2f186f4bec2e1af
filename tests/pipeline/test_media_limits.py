"""An engine's own limits on media hold although it never sees the media as the client sent them (spec multimodal 6)."""

import pytest

from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, MediaItem
from smg.core.request import MediaPart
from smg.pipeline.media_limits import check_budget, most_items
from tests.pipeline.test_media import worker


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([""], (None, None)),
        (["image=8,video=2"], (8, 2)),
        (["video=1"], (None, 1)),
        ([" image = 8 , junk, video=x, =3"], (8, None)),
        # The strictest of those that tell.
        (["image=8", "image=3,video=1", ""], (3, 1)),
        (["image=0"], (None, None)),
    ],
)
def test_counts(labels, expected):
    workers = [worker(f"vllm{place}", mm_item_limits=label) for place, label in enumerate(labels)]
    assert (most_items(workers, "image"), most_items(workers, "video")) == expected
    assert most_items([worker()], "image") is None


def inputs(*tokens):
    """Items of so many tokens, in two runs each; images and videos by turns."""
    items = [
        MediaItem(("image", "video")[place % 2], "0" * 64, b"", (0, count), [(0, 1), (2, count - 1)], None, {})
        for place, count in enumerate(tokens)
    ]
    return MediaInputs(items, None, {}, "", (), 9, [], 100)


WANTED = [(f"messages[0].content[{place}]", MediaPart(("image", "video")[place % 2])) for place in range(4)]


def test_an_item_an_engine_could_never_work_on_is_named():
    told = [worker(mm_encoder_budget="50"), worker("b", mm_encoder_budget="80"), worker("c")]
    check_budget(told, WANTED, inputs(50, 50, 50, 50))
    with pytest.raises(
        GatewayError, match="the video becomes 51 tokens, but the engines of this model take 50"
    ) as caught:
        check_budget(told, WANTED, inputs(50, 50, 50, 51))
    assert (caught.value.code, caught.value.status) == ("media_too_large", 400)
    assert caught.value.param == "messages[0].content[3]"


@pytest.mark.parametrize("label", ["", "0", "many"])
def test_without_a_budget_all_may_pass(label):
    check_budget([worker(mm_encoder_budget=label), worker("b")], WANTED, inputs(10**6))
