"""Requests with media as vLLM's own classes read them: what an engine core decodes is what the servicer of the gRPC
contract would have made of the same request, and the model of each family finds what it looks for."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from smg.core.backends import EngineRequest
from smg.core.request import MediaPart
from smg.engines.table import adapter
from smg.engines.vllm.names import UNPADDED
from smg.engines.zmq.frames import Told
from smg.engines.zmq.wire import VllmWire
from tests.media.test_audio_video import FPS, FRAMES, QWEN2, QWEN3, clip
from tests.media.test_contracts import MODELS, content, make

__all__ = ["make"]

# vLLM takes a minute and more to import where the machine is busy.
pytestmark = [pytest.mark.real_vllm, pytest.mark.timeout(400)]

READERS = {
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLForConditionalGeneration"),
    "glm4v": ("glm4_1v", "Glm4vForConditionalGeneration"),
    "llava": ("llava", "LlavaForConditionalGeneration"),
    "llava_next": ("llava_next", "LlavaNextForConditionalGeneration"),
    "llava_onevision": ("llava_onevision", "LlavaOnevisionForConditionalGeneration"),
    "pixtral": ("pixtral", "PixtralForConditionalGeneration"),
    "mistral3": ("mistral3", "Mistral3ForConditionalGeneration"),
    "gemma3": ("gemma3_mm", "Gemma3ForConditionalGeneration"),
    "internvl": ("interns1", "InternS1ForConditionalGeneration"),
    "llama4": ("mllama4", "Llama4ForConditionalGeneration"),
    "kimi_k25": ("kimi_k25", "KimiK25ForConditionalGeneration"),
    "phi3_v": ("phi3v", "Phi3VForCausalLM"),
    "phi4mm": ("phi4mm", "Phi4MMForCausalLM"),
}


def asked(request: EngineRequest, reader: tuple[str, str], *, compared: bool) -> dict[str, object]:
    frames = VllmWire().add(request, 0, 1, Told(1 << 20, "bfloat16"))
    message = adapter("vllm").generate(request) if compared else b""
    return {"frames": [bytes(frame) for frame in frames], "message": message, "module": reader[0], "model": reader[1]}


def verdicts(file: Path) -> dict[str, str]:
    python = Path(os.environ["SMG_REAL_VLLM"]) / "venv" / "bin" / "python"
    peer = Path(__file__).with_name("media_peer.py")
    run = subprocess.run([python, peer, file], capture_output=True, text=True, timeout=280, check=True)
    return dict(json.loads(run.stdout.splitlines()[-1]))


async def test_every_family_is_read_as_it_is_meant(make, tmp_path):
    questions = {}
    for name, reader in READERS.items():
        world = make(MODELS[name][0])
        # Rounding is vision's where the engine's type is known, else that of who sends.
        for dtype in ("bfloat16", "float32"):
            _, request = await world.ask(dtype, *content())
            questions[f"{name} {dtype}"] = asked(request, reader, compared=name not in UNPADDED)
    parts = [MediaPart("video", data=clip(frames, FPS)) for frames in (FRAMES, FRAMES[:8])]
    for name, model in (("qwen2_5_vl", QWEN2), ("qwen3_vl", QWEN3)):
        _, request = await make(model).ask("bfloat16", *parts, kind="video")
        questions[f"{name} video"] = asked(request, READERS[name], compared=True)
    file = tmp_path / "requests"
    file.write_bytes(msgspec.msgpack.encode(questions))
    found = await asyncio.to_thread(verdicts, file)
    assert len(found) == len(questions) == 30
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
