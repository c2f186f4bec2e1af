"""SGLang's ``MultimodalInputs``: one batch, and the runs of positions it is written over (spec multimodal 12).

The encoded images, which the message has room for, stay here: the engine reads the tensor and never looks at them.
"""

from typing import Any

from smg_grpc_proto import sglang_scheduler_pb2 as pb

from smg.core.media import MediaInputs
from smg.engines import media
from smg.engines.contract import unsupported


def multimodal_inputs(inputs: MediaInputs) -> Any:
    """Everything but the bytes of the primary tensor. Raises GatewayError when there is no tensor to describe."""
    if inputs.tensor is None:
        raise unsupported("messages", f"raw {inputs.modality} input")
    runs = [run for item in inputs.items for run in item.patches]
    return pb.MultimodalInputs(
        pixel_values=media.tensor(pb.TensorData, inputs.tensor, None),
        modalities=[inputs.modality],
        model_specific_tensors={name: media.tensor(pb.TensorData, side, "data") for name, side in inputs.side.items()},
        im_token_id=inputs.token_id,
        mm_placeholders=media.ranges(pb.PlaceholderRange, runs),
    )
