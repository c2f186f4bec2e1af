"""Gemma 3: one squashed square view, 256 tokens (spec multimodal 8.9)."""

from collections.abc import Sequence
from typing import ClassVar

from smg.vision.config import HALF, ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Replacement, Tensor, Vocabulary, integers, token_id
from smg.vision.filters import Flavour
from smg.vision.layouts import window
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial


class Gemma3(Family):
    """``pixel_values`` [n, 3, S, S], a view of each image. Pan and scan, off in every published configuration, is not
    done."""

    name = "gemma3"
    placeholder = "<start_of_image>"
    layout = Layout("flat", "num_patches")
    filter = "bilinear"
    mean = HALF
    std = HALF
    features: ClassVar[str] = "<image_soft_token>"

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.height = config.size.get("height", 224)
        self.width = config.size.get("width", 224)
        tokens = config.model.get("mm_tokens_per_image")
        self.tokens = tokens if isinstance(tokens, int) and tokens > 0 else 256

    def plan(self, height: int, width: int) -> Plan:
        return Plan(height, width, (1, 3, self.height, self.width), self.tokens)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        window(self.resized(image, self.height, self.width, split), self.table, out[0])

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {"num_patches": integers(plans, lambda plan: plan.shape[0])}

    def feature_id(self, vocabulary: Vocabulary) -> int:
        configured = self.config_id("image_token_index", "image_token_id")
        return token_id(vocabulary, self.features) if configured is None else configured

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        """Two line ends, the markers around the features, two line ends."""
        feature = self.feature_id(vocabulary)
        gap = vocabulary.encode("\n\n")
        start, end = token_id(vocabulary, self.placeholder), token_id(vocabulary, "<end_of_image>")
        return Replacement([*gap, start, *[feature] * plan.tokens, end, *gap], feature)
