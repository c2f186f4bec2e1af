"""SGLang's ``MultimodalInputs``: one batch, and the runs of positions it is written over (spec multimodal 12).

The encoded images, which the message has room for, stay here: the engine reads the tensor and never looks at them.
"""

from typing import Any

from msgspec.structs import replace
from smg_grpc_proto import sglang_scheduler_pb2 as pb

from smg.core.media import MediaInputs, Tensor
from smg.engines import media
from smg.engines.contract import unsupported
from smg.engines.parcel import Parcel

# What SGLang's models call tensors, where that is not what the families here call them.
_NAMES = {"aspect_ratio_ids": "aspect_ratio_id"}
# Families whose models take a batch of requests, of which this is one.
_OF_REQUESTS = frozenset({"mllama"})


def multimodal_inputs(inputs: MediaInputs, parcel: Parcel) -> Any:
    """Everything but the bytes of the primary tensor. Raises GatewayError when there is no tensor to describe."""
    if inputs.tensor is None:
        raise unsupported("messages", f"raw {inputs.modality} input")
    around = (1,) if inputs.family in _OF_REQUESTS else ()

    def told(value: Tensor, field: str | None) -> Any:
        return media.tensor(pb.TensorData, replace(value, shape=(*around, *value.shape)), field, parcel)

    runs = [run for item in inputs.items for run in item.patches]
    return pb.MultimodalInputs(
        pixel_values=told(inputs.tensor, None),
        modalities=[inputs.modality],
        model_specific_tensors={_NAMES.get(name, name): told(side, "data") for name, side in inputs.side.items()},
        im_token_id=inputs.token_id,
        mm_placeholders=media.ranges(pb.PlaceholderRange, runs),
    )
