"""vLLM's own reading of our requests with media: run by the Python of a vLLM installation, one file of requests in, one
JSON object out that has what is wrong with each of them (empty: nothing).

A request has the ``frames`` for an engine core, decoded as it decodes them, and maybe the ``message`` for the servicer
of the gRPC contract, whose items have to be the same. Then the model itself (``module`` and ``model``) reads the batch.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import msgspec
import torch
import transformers  # noqa: F401 - before what stands in for torchvision
from smg_grpc_proto import vllm_engine_pb2
from smg_grpc_servicer.vllm import mm_keys
from smg_grpc_servicer.vllm.servicer import VllmEngineServicer
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.serial_utils import MsgpackDecoder

# It is not installed, and only processors would use it.
for name in ("", ".transforms", ".transforms.functional", ".transforms.v2", ".transforms.v2.functional", ".io"):
    sys.modules[f"torchvision{name}"] = MagicMock(__spec__=None)

_decoder = MsgpackDecoder(EngineCoreRequest)


class Stub:
    """Stands in for a model's configuration and whatever else reading asks of it."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> "Stub":
        return Stub()


def servicer() -> Any:
    made = VllmEngineServicer.__new__(VllmEngineServicer)
    made.engine = Stub(model_config=Stub(dtype=torch.bfloat16))
    return made


def agree(features: Any, message: bytes) -> None:
    """Raise AssertionError where an item is not what the servicer makes of the same request."""
    request = vllm_engine_pb2.GenerateRequest.FromString(message)
    built = servicer()._build_preprocessed_mm_inputs(request.tokenized, mm_keys.mm_batches(request))
    [modality] = built["mm_kwargs"]
    rows = (built["mm_kwargs"][modality], built["mm_placeholders"][modality], built["mm_hashes"][modality])
    for feature, item, place, digest in zip(features, *rows, strict=True):
        assert (feature.modality, feature.identifier, feature.mm_hash) == (modality, digest, digest)
        assert feature.mm_position == place, (feature.mm_position, place)
        assert set(feature.data) == set(item), (set(feature.data), set(item))
        for key, expected in item.items():
            found = feature.data[key]
            assert type(found.field) is type(expected.field), key
            assert found.data.dtype == expected.data.dtype, key
            assert torch.equal(found.data, expected.data), key


def read_by_model(features: Any, module: str, model: str, modality: str) -> Any:
    """What the model's class makes of the batch. Raises whatever it raises."""
    kind = getattr(importlib.import_module(f"vllm.model_executor.models.{module}"), model)
    batch = {
        key: first.field.reduce_data([one.data[key] for one in features]) for key, first in features[0].data.items()
    }
    pixels = batch.get("pixel_values")
    side = 448 if pixels is None else pixels[0].shape[-1]
    sizes = [side, side] if model.startswith("Intern") else side
    vision = Stub(image_size=sizes, model_type="clip_vision_model", in_channels=3, patch_size=14, temporal_patch_size=2)
    owner = Stub(config=Stub(vision_config=vision))
    names = (f"_parse_and_validate_{modality}_input", "_parse_and_validate_media_input")
    return next(getattr(kind, name) for name in names if hasattr(kind, name))(owner, **batch)


def judge(asked: dict[str, Any]) -> str:
    request = _decoder.decode(asked["frames"])
    features = request.mm_features
    try:
        if asked["message"]:
            agree(features, asked["message"])
        seen = read_by_model(features, asked["module"], asked["model"], features[0].modality)
    except Exception as error:
        return repr(error)
    return "" if seen is not None else "the model sees nothing"


if __name__ == "__main__":
    given = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes())
    sys.stdout.write(json.dumps({name: judge(asked) for name, asked in given.items()}) + "\n")
