"""TokenSpeed's ``MultimodalInputs``: an item for each image, with tensors of its own (spec multimodal 12)."""

from typing import Any

from smg_grpc_proto import tokenspeed_scheduler_pb2 as pb

from smg.core.media import MediaInputs, MediaItem
from smg.engines import media, protobuf
from smg.engines.contract import unsupported
from smg.engines.parcel import Parcel


def pieces(inputs: MediaInputs, parcel: Parcel, *, pixels: bool = True) -> list[Any]:
    """The buffers of the field ``mm_inputs`` of a GenerateRequest, to be put behind a serialized one.

    Without ``pixels`` the items are only described: what they are, where their features go, and the small tensors that
    positions in the prompt depend on.
    """
    return [
        buffer
        for item in inputs.items
        for buffer in media.nested(
            pb.GenerateRequest, ("mm_inputs", "items"), item_pieces(item, inputs.token_id, parcel, pixels=pixels)
        )
    ]


def item_pieces(item: MediaItem, token_id: int, parcel: Parcel, *, pixels: bool = True) -> list[Any]:
    """The buffers of a serialized MultimodalItem. Raises GatewayError (400) for an item without tensors."""
    if item.tensor is None:
        raise unsupported("messages", f"raw {item.modality} input")
    message = pb.MultimodalItem(
        modality=media.MODALITIES[item.modality],
        content_hash=bytes.fromhex(item.digest),
        encoder_input=media.tensor(pb.TensorData, item.tensor, None, parcel) if pixels else None,
        model_specific_tensors={
            name: media.tensor(pb.TensorData, side, "inline", parcel) for name, side in item.side.items()
        },
        placeholders=media.ranges(pb.PlaceholderRange, item.patches),
        placeholder_token_id=token_id if item.token_id is None else item.token_id,
    )
    if not pixels:
        return [protobuf.encode(message)]
    tensor = media.payload(pb.MultimodalItem, ("encoder_input",), "inline", item.tensor, parcel)
    return [protobuf.encode(message), *tensor]
