"""The encoder service of the TokenSpeed contract: media to embeddings (spec engine-contract 3.6 and 5.4).

One call encodes one item. Its embeddings go to the prefill engine, which finds them by the room both were told.
"""

from smg_grpc_proto import tokenspeed_encoder_pb2 as encoder

from smg._native.joined import join
from smg.core.media import MediaItem
from smg.engines import media, protobuf
from smg.engines.parcel import Parcel
from smg.engines.tokenspeed.media import item_pieces

SERVICE = "tokenspeed.grpc.encoder.TokenSpeedEncoder"


def encode_request(request_id: str, item: MediaItem, token_id: int, room: int, parcel: Parcel) -> bytes:
    """Encode an EncodeRequest for ``item``, to be handed over in ``room``; ``token_id`` is that of its placeholders.

    Raises:
        GatewayError: 400 for an item without tensors.
    """
    message = encoder.EncodeRequest(request_id=request_id)
    message.items.add(bootstrap_room=room)
    pieces = media.nested(encoder.EncodeRequest, ("mm_inputs", "items"), item_pieces(item, token_id, parcel))
    return join([protobuf.encode(message), *pieces])


def accepted(message: bytes) -> bool:
    """Decode the answer. Raises ValueError when it is not one."""
    return bool(protobuf.parse(encoder.EncodeResponse, message).accepted)
