"""Media in a request to vLLM's engine core: a feature for each item (spec engine-contract 6.4, multimodal 12).

What the servicer of the gRPC contract does with a batch is done here: the batch taken apart, tensors called as models
take them, and floats in the model's own type.
"""

from itertools import pairwise
from typing import Any

from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.engines.contract import unsupported
from smg.engines.vllm.names import PRIMARY, UNPADDED, names, shared
from smg.engines.zmq.tensors import Behind, cast, counts, cropped, mask

# What the servicer of the gRPC contract calls the primary tensor of a video.
_VIDEO = {PRIMARY: "pixel_values_videos"}


def features(inputs: MediaInputs, dtype: str, behind: Behind) -> list[dict[str, Any]]:
    """The field ``mm_features``, by place in the prompt; large tensors go into ``behind``.

    ``dtype`` is what the engine computes in, empty when that is unknown.

    Raises:
        GatewayError: ``unsupported_parameter`` (400): there are no tensors, or of a type that the engine does not take.
    """
    return [_feature(inputs, item, dtype, behind) for item in inputs.items]


def _feature(inputs: MediaInputs, item: MediaItem, dtype: str, behind: Behind) -> dict[str, Any]:
    if item.tensor is None:
        raise unsupported("messages", f"raw {item.modality} input")
    called = names(inputs)
    if item.modality == "video":
        called = {**called, **_VIDEO}
    own = cropped(item.tensor, item.side["image_sizes"]) if inputs.family in UNPADDED else item.tensor
    primary = cast(own, dtype)
    if inputs.sizes:
        data = {called.get(PRIMARY, PRIMARY): _element(behind.put(primary), _flat(inputs))}
    else:
        data = {called.get(PRIMARY, PRIMARY): _element(_entry(primary, behind), _batched(inputs, PRIMARY))}
    for name, side in item.side.items():
        if name in inputs.flat:
            data[called.get(name, name)] = _element(behind.put(cast(side, dtype)), _flat(inputs))
        else:
            data[called.get(name, name)] = _element(_entry(cast(side, dtype), behind), _batched(inputs, name))
    for name, side in shared(inputs).items():
        data[name] = _element(behind.put(side), ["shared", {"batch_size": len(inputs.items), "keep_on_cpu": False}])
    offset, length = item.structural
    embedded = mask(item.patches, item.structural)
    return {
        "data": data,
        "modality": item.modality,
        "identifier": item.digest,
        "mm_position": {
            "offset": offset,
            "length": length,
            "is_embed": None if embedded is None else behind.put(embedded),
        },
        "mm_hash": item.digest,
    }


def _entry(value: Tensor, behind: Behind) -> list[Any]:
    """The one entry of a tensor with an entry per item."""
    return behind.put(value, value.shape[1:])


def _element(data: list[Any], field: list[Any]) -> dict[str, Any]:
    return {"data": data, "field": field}


def _batched(inputs: MediaInputs, name: str) -> list[Any]:
    """Put together with those of other items by stacking."""
    return ["batched", {"keep_on_cpu": name in inputs.keep_on_cpu}]


def _flat(inputs: MediaInputs) -> list[Any]:
    """Put together with those of other items by joining rows; all items' rows are told with each."""
    ends = [0]
    for size in counts(inputs.side[inputs.sizes]):
        ends.append(ends[-1] + size)
    slices = [[[start, end, None]] for start, end in pairwise(ends)]
    return ["flat", {"slices": slices, "dim": 0, "keep_on_cpu": False}]
