"""Models that see through SigLIP's own processor: one view, squashed, a token for each patch (spec multimodal 8.9)."""

from collections.abc import Mapping, Sequence

from smg.vision.config import HALF, ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Tensor
from smg.vision.filters import Flavour
from smg.vision.layouts import window
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial

_ENCODERS = ("siglip_vision_model", "siglip2_vision_model")
_PROCESSORS = ("SiglipImageProcessor", "SiglipImageProcessorFast", "SiglipImageProcessorPil")
# Where configurations say how many tokens an image has, outside in.
_COUNTS = ("image_seq_length", "image_seq_len", "mm_tokens_per_image", "num_image_tokens")


class Siglip(Family):
    """``pixel_values`` [n, 3, H, W], and so many tokens as the configuration says, or as the view has patches."""

    name = "siglip"
    placeholder = "<image>"
    layout = Layout("batched")
    mean = HALF
    std = HALF

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.height = config.size.get("height", 224)
        self.width = config.size.get("width", 224)
        patch = config.vision("patch_size", 16)
        self.tokens = _told(config) or (self.height // patch) * (self.width // patch)

    def plan(self, height: int, width: int) -> Plan:
        return Plan(height, width, (3, self.height, self.width), self.tokens)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        window(self.resized(image, self.height, self.width, split), self.table, out, split=split)

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {}


def sees_with_siglip(config: ImageConfig) -> bool:
    """Whether a model of no known family can be served as ``Siglip``: its files name that encoder and processor, and
    the token of an image."""
    vision = config.model.get("vision_config")
    encoder = vision.get("model_type") if isinstance(vision, Mapping) else None
    named = any(isinstance(config.model.get(name), int) for name in ("image_token_id", "image_token_index"))
    return named and encoder in _ENCODERS and config.raw.get("image_processor_type") in _PROCESSORS


def _told(config: ImageConfig) -> int | None:
    """The tokens of an image, where a file tells them."""
    sections = (config.raw, config.model, config.model.get("text_config"), config.model.get("vision_config"))
    for section in sections:
        found = [section.get(name) for name in _COUNTS] if isinstance(section, Mapping) else []
        for value in found:
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
