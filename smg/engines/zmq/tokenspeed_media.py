"""Media in a request to TokenSpeed's scheduler: an item for each, its fields by position (spec multimodal 12).

The scheduler derives positions and the ids it caches by from them itself.
"""

from typing import Any

from smg.core.media import MediaInputs, MediaItem
from smg.engines.contract import unsupported
from smg.engines.zmq.tensors import Behind

_MODALITIES = {"image": 1, "video": 2, "audio": 3}


def multimodal_inputs(inputs: MediaInputs, behind: Behind) -> list[Any]:
    """The field ``multimodal_inputs``; large tensors go into ``behind``.

    Raises:
        GatewayError: ``unsupported_parameter`` (400): there are no tensors.
    """
    tokens = {
        item.modality: inputs.token_id if item.token_id is None else item.token_id for item in reversed(inputs.items)
    }
    return [[_item(item, behind) for item in inputs.items], tokens.get("image"), tokens.get("video")]


def _item(item: MediaItem, behind: Behind) -> list[Any]:
    if item.tensor is None:
        raise unsupported("messages", f"raw {item.modality} input")
    return [
        _MODALITIES[item.modality],
        # As the engine itself reads the digest where it comes over gRPC.
        int.from_bytes(bytes.fromhex(item.digest)[:8], "little"),
        None,  # the id it is cached by
        [[offset, offset + length - 1] for offset, length in item.patches],
        behind.put(item.tensor),
        None,  # the tensor in shared memory
        {name: behind.put(side) for name, side in item.side.items()},
    ]
