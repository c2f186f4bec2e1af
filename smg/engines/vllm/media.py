"""vLLM's ``MultimodalInputs``: one batch with named tensors, and how the engine takes it apart (spec multimodal 12)."""

from typing import Any

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core.media import MediaInputs
from smg.engines import media
from smg.engines.contract import unsupported
from smg.engines.parcel import Parcel
from smg.engines.vllm.names import PRIMARY, check_sizes, names, shared


def multimodal_inputs(inputs: MediaInputs, parcel: Parcel, *, pixels: bool = True) -> Any:
    """Everything but the bytes of the primary tensor, and the tensors with an entry per row.

    Raises GatewayError when there is no tensor to describe.

    Without ``pixels`` there is to be no primary tensor at all: positions, and the hashes by which the engine's cache
    tells equal prompts with different media apart.
    """
    if inputs.tensor is None:
        raise unsupported("messages", f"raw {inputs.modality} input")
    check_sizes(inputs)
    called = names(inputs)
    primary = called.get(PRIMARY, PRIMARY)
    message = pb.MultimodalInputs(
        pixel_values=media.tensor(pb.TensorData, inputs.tensor, None, parcel) if pixels else None,
        model_specific_tensors={
            called.get(name, name): media.tensor(pb.TensorData, side, "inline", parcel)
            for name, side in {**inputs.side, **shared(inputs)}.items()
            if name not in inputs.flat
        },
        im_token_id=inputs.token_id,
        # Delimiters and line breaks included: the engine masks by the token.
        mm_placeholders=media.ranges(pb.PlaceholderRange, [item.structural for item in inputs.items]),
        mm_hashes=[item.digest for item in inputs.items],
        batched_keys=[called.get(name, name) for name in inputs.side if name not in inputs.flat],
        keep_on_cpu_keys=[called.get(name, name) for name in inputs.keep_on_cpu if name in inputs.side],
        modality=media.MODALITIES[inputs.modality],
        encoder_input_key="" if primary == PRIMARY else primary,
    )
    for name in inputs.flat:
        message.flat_keys[called.get(name, name)] = called.get(inputs.sizes, inputs.sizes)
    if not pixels:
        return message
    if inputs.sizes:
        message.flat_keys[primary] = called.get(inputs.sizes, inputs.sizes)
    else:
        message.batched_keys.append(primary)
    return message
