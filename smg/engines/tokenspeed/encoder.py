"""The encoder service of the TokenSpeed contract: media to embeddings (spec engine-contract 3.6 and 5.4).

One call encodes one item. Its embeddings go to the prefill engine, which finds them by the room both were told.
"""

from smg_grpc_proto import tokenspeed_encoder_pb2 as encoder
from smg_grpc_proto import tokenspeed_scheduler_pb2 as pb
from smg_grpc_proto.generated import common_pb2

from smg.engines import protobuf
from smg.engines.encoder_items import MediaItem, MediaTensor

SERVICE = "tokenspeed.grpc.encoder.TokenSpeedEncoder"


def encode_request(request_id: str, item: MediaItem, room: int) -> bytes:
    """Encode an EncodeRequest for ``item``, to be handed over in ``room``."""
    message = encoder.EncodeRequest(request_id=request_id)
    message.mm_inputs.items.append(_item(item))
    message.items.add(bootstrap_room=room)
    return protobuf.encode(message)


def accepted(message: bytes) -> bool:
    """Decode the answer. Raises ValueError when it is not one."""
    return bool(protobuf.parse(encoder.EncodeResponse, message).accepted)


def _item(item: MediaItem) -> pb.MultimodalItem:
    message = pb.MultimodalItem(
        modality=common_pb2.Modality.Value(item.modality.upper()),
        content_hash=item.content_hash,
        encoder_input=_tensor(item.pixels),
        placeholders=[pb.PlaceholderRange(offset=offset, length=length) for offset, length in item.placeholders],
        placeholder_token_id=item.token,
    )
    for name, tensor in item.tensors.items():
        message.model_specific_tensors[name].CopyFrom(_tensor(tensor))
    return message


def _tensor(tensor: MediaTensor) -> pb.TensorData:
    return pb.TensorData(shape=tensor.shape, dtype=tensor.dtype, inline=tensor.data)
