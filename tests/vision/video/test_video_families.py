"""What models see of a video: frames, patches, token counts and prompts (spec multimodal 8.1, 8.2, 10).

golden.json is made by generate_golden.py from the Hugging Face processors.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from video_cases import RATES, TENSORS, TOTALS, moving

from smg.core.errors import GatewayError
from smg.vision.config import parse_config
from smg.vision.expand import Anchor, expand
from smg.vision.video import frames
from smg.vision.video.decode import VideoInfo
from smg.vision.video.families import Qwen2Video, Qwen3OmniVideo, Qwen3Video, find_family
from smg.vision.video.frames import Rates

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text("utf-8"))
FAMILIES = {"qwen2": Qwen2Video, "qwen3": Qwen3Video}
PICKS = {"qwen2": frames.qwen2, "qwen3": frames.qwen3}
# At this rate the usual two frames a second are all there are.
FPS = 2.0


IDS = {"<|video_pad|>": 900, "<|vision_start|>": 901, "<|vision_end|>": 902}


class Vocabulary:
    def id(self, token):
        return IDS.get(token)

    def encode(self, text):
        return [ord(char) for char in text]


def made(kind, config=None, model=None, **options):
    return kind(parse_config(model or {}, config or {}), **options)


def filled(family, video):
    plan = family.plan(VideoInfo(*video.shape[:3], FPS))
    out = np.empty(plan.shape, np.float32)
    for number, index in enumerate(plan.indices):
        family.fill(number, video[index], plan, out)
    return plan, out


@pytest.mark.parametrize("case", TENSORS, ids=lambda case: "-".join(map(str, case)))
def test_patches_are_the_processor_s(case, either):
    name, *size = case
    expected = GOLDEN["tensors"]["-".join(map(str, case))]
    plan, out = filled(made(FAMILIES[name]), moving(*size))
    assert plan.indices == list(range(size[0]))
    assert [list(plan.grid)] == expected["grid"]
    assert list(out.shape) == expected["shape"]
    assert hashlib.sha256(out.tobytes()).hexdigest() == expected["sha256"]
    assert plan.tokens == out.shape[0] // 4


@pytest.mark.parametrize("fps", RATES)
@pytest.mark.parametrize("name", PICKS)
def test_frames_are_picked_as_the_processor_does(name, fps):
    digest = hashlib.sha256()
    for total in TOTALS:
        digest.update(json.dumps(PICKS[name](total, fps, Rates())).encode())
    assert digest.hexdigest() == GOLDEN["picked"][name][str(fps)]


@pytest.mark.parametrize(
    ("total", "fps", "expected"),
    [(100, 10.0, 20), (10, 30.0, 4), (3, 30.0, 3), (1, 30.0, 1), (100_000, 30.0, 768)],
)
def test_vllm_picks_by_the_duration(total, fps, expected):
    indices = frames.vllm(total, fps, Rates())
    assert len(indices) == expected
    assert (indices[0], indices[-1]) == (0, total - 1)
    assert indices == [i * (total - 1) // max(expected - 1, 1) for i in range(expected)]


def test_a_flavour_is_chosen_by_the_setting():
    info = VideoInfo(100, 64, 64, 9.0)
    assert made(Qwen3Video).plan(info).indices != made(Qwen3Video, sampling="vllm").plan(info).indices


def test_a_single_picture_is_a_video_too():
    for kind in FAMILIES.values():
        plan, out = filled(made(kind), moving(1, 64, 64))
        assert plan.grid[0] == 1
        steps = out.reshape(-1, 3, 2, kind.patch**2)
        np.testing.assert_array_equal(steps[:, :, 0], steps[:, :, 1])


def test_times_are_the_middle_of_each_step():
    assert frames.timestamps([0, 12, 24, 36, 48], 24.0, 2) == [0.25, 1.25, 2.0]


def test_qwen3_tells_the_time_in_front_of_each_step():
    plan = made(Qwen3Video).plan(VideoInfo(8, 64, 64, 2.0))
    assert plan.tokens == 4 * (plan.tokens // 4)
    each = plan.tokens // 4
    replacement = made(Qwen3Video).prompt(plan, Vocabulary())
    ids, bindings = expand([5, 901, 900, 902, 6], [Anchor("video", 900, [replacement])])
    expected = [5]
    for second in ("0.2", "1.2", "2.2", "3.2"):
        expected += [*map(ord, f"<{second} seconds>"), 901, *[900] * each, 902]
    assert ids == [*expected, 6]
    assert bindings[0].structural == (1, len(ids) - 2)
    assert [length for _, length in bindings[0].patches] == [each] * 4
    assert all(ids[start] == 900 and ids[start - 1] == 901 for start, _ in bindings[0].patches)


@pytest.mark.parametrize("prompt", [[5, 900, 902], [901, 900], [901, 900, 6], [900]])
def test_a_template_without_the_markers_is_told(prompt):
    plan = made(Qwen3Video).plan(VideoInfo(8, 64, 64, 2.0))
    with pytest.raises(GatewayError, match="no markers") as caught:
        expand(prompt, [Anchor("video", 900, [made(Qwen3Video).prompt(plan, Vocabulary())])])
    assert caught.value.code == "multimodal_prompt_contract_mismatch"


def test_qwen2_has_one_run_and_the_distance_of_steps():
    family = made(Qwen2Video, model={"video_token_id": 33})
    plan = family.plan(VideoInfo(100, 300, 400, 10.0))
    assert plan.grid[0] == 10
    assert family.prompt(plan, Vocabulary()).ids == [33] * plan.tokens
    side = family.side([plan])
    assert side["video_second_per_grid"].tolist() == [1.0]
    assert side["video_grid_thw"].tolist() == [list(plan.grid)]
    assert side["patches_per_video"].tolist() == [plan.shape[0]]


def test_omni_s_video_has_patches_of_its_own_and_the_thinker_s_ids():
    family = made(Qwen3OmniVideo, model={"thinker_config": {"video_token_id": 44}})
    plan = family.plan(VideoInfo(40, 720, 1280, 10.0))
    rows, columns = plan.grid[1:]
    assert plan.grid[0] == 4
    # 786,432 pixels a frame at most, in squares of 32.
    assert (rows * 16 * columns * 16 <= 786_432, rows % 2, columns % 2) == (True, 0, 0)
    assert plan.shape == (4 * rows * columns, 1536)
    assert family.prompt(plan, Vocabulary()).ids == [44] * plan.tokens


def test_the_model_s_files_decide():
    info = VideoInfo(300, 480, 640, 30.0)
    assert len(made(Qwen3Video, {"fps": 1}).plan(info).indices) == 10
    assert len(made(Qwen3Video, {"num_frames": 6}).plan(info).indices) == 6
    assert len(made(Qwen3Video, {"max_frames": 8}).plan(info).indices) == 8
    small = made(Qwen3Video, {"size": {"shortest_edge": 1, "longest_edge": 200_000}}).plan(info)
    assert small.shape[0] * 256 * 2 <= 200_000


def test_a_strip_beyond_the_limit_is_the_client_s_error():
    for kind in FAMILIES.values():
        with pytest.raises(GatewayError, match="too narrow"):
            made(kind).plan(VideoInfo(10, 10, 30_000, 10.0))


@pytest.mark.parametrize(
    ("name", "model", "family"),
    [
        ("x", {"model_type": "qwen2_5_vl"}, Qwen2Video),
        ("x", {"model_type": "qwen3_vl_moe"}, Qwen3Video),
        ("Qwen/Qwen3-VL-8B", {}, Qwen3Video),
        ("Qwen/Qwen2-VL-7B", {}, Qwen2Video),
        ("x", {"model_type": "qwen3_omni_moe"}, Qwen3OmniVideo),
        ("x", {"model_type": "pixtral"}, None),
        ("x", {}, None),
    ],
)
def test_which_family(name, model, family):
    assert find_family(name, model) is family
