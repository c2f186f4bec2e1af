"""Images as a medium: one from its bytes to its part of the tensor."""

import numpy as np

from smg.core import clock
from smg.core.media import Encoded
from smg.vision.cache import Processed
from smg.vision.decode import DEFAULT_OPTIONS, DecodeOptions, decode_image
from smg.vision.families.base import Family
from smg.vision.model import VisionModel
from smg.vision.normalise import STORAGE, Precision
from smg.vision.pool import Split


class ImageMedium:
    """Images to one model (``items.Medium``)."""

    kind = "image"

    def __init__(self, model: VisionModel, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        self._model = model
        self._options = options
        self.placeholder = model.placeholder
        self.limit = model.limit
        self.search_id = model.search_id
        self.vocabulary = model.vocabulary
        self.settings = model.settings + repr(options).encode()

    def family(self, precision: Precision) -> Family:
        """See ``items.Medium``."""
        return self._model.family(precision)

    def process(self, encoded: Encoded, precision: Precision | None, split: Split) -> Processed:
        """See ``items.Medium``; the pixels live no longer than the call."""
        started = clock.monotonic()
        pixels = decode_image(encoded, self._options).pixels
        decode_secs = clock.monotonic() - started
        family = self.family(precision or "float32")
        plan = family.plan(pixels.shape[0], pixels.shape[1])
        if precision is None:
            return Processed(plan, None, decode_secs)
        out = np.empty(plan.shape, STORAGE[precision])
        family.fill(pixels, plan, out, split)
        out.flags.writeable = False
        return Processed(plan, out, decode_secs)
