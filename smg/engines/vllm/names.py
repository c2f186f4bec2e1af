"""What vLLM's models call tensors, where that is not what the families here call them (spec multimodal 12).

Checked against the models of vLLM 0.32. A model passes over a tensor whose name it does not know. Without its pixels or
their counts it takes the request for one without images, or fails.
"""

from collections.abc import Mapping

from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, Tensor

PRIMARY = "pixel_values"

_OF_FAMILIES: Mapping[str, Mapping[str, str]] = {
    "inkling": {"tokens_per_item": "num_patches"},
    "internvl": {"num_patches": "image_num_patches"},
    "phi4_multimodal": {PRIMARY: "input_image_embeds"},
    "pixtral": {PRIMARY: "images"},
}
_OF_VIDEO = {"video_second_per_grid": "second_per_grid_ts"}
# Families whose images vLLM takes as large as they are: what fills up a batch would be seen.
UNPADDED = frozenset({"pixtral", "mistral3"})


def shared(inputs: MediaInputs) -> Mapping[str, Tensor]:
    """Tensors of all items at once: the token that features are written over, where a model wants to be told."""
    if inputs.family != "internvl":
        return {}
    return {"image_token_id": Tensor("int64", (1,), (inputs.token_id.to_bytes(8, "little"),))}


def names(inputs: MediaInputs) -> Mapping[str, str]:
    """Names of the contract, or of the family, to those of the model."""
    return _OF_VIDEO if inputs.modality == "video" else _OF_FAMILIES.get(inputs.family, {})


def check_sizes(inputs: MediaInputs) -> None:
    """Refuse a batch that the engine could not take apart into images without padding.

    Raises:
        GatewayError: ``invalid_multimodal_request`` (400).
    """
    if inputs.family not in UNPADDED:
        return
    sizes = {item.side["image_sizes"].tobytes() for item in inputs.items}
    if len(sizes) > 1:
        message = "the engines of this model take images of one request only if they have one size"
        raise GatewayError("invalid_multimodal_request", message, param="messages")
