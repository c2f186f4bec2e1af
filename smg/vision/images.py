"""Images as a medium: one from its bytes to its part of the tensor."""

import math
from collections.abc import Callable

import numpy as np

from smg.core import clock
from smg.core.media import Encoded
from smg.vision.cache import Processed
from smg.vision.containers import Deadline
from smg.vision.decode import DEFAULT_OPTIONS, DecodeOptions, count_pixels, decode_image
from smg.vision.families.base import Family
from smg.vision.items import becomes_too_large
from smg.vision.model import VisionModel
from smg.vision.normalise import STORAGE, Precision
from smg.vision.pool import Split


class ImageMedium:
    """Images to one model (``items.Medium``).

    ``timeout_secs`` bounds the work for one, ``most_bytes`` what it may become (0: no limit). Not every family has a
    limit of its own.
    """

    kind = "image"

    def __init__(
        self,
        model: VisionModel,
        options: DecodeOptions = DEFAULT_OPTIONS,
        timeout_secs: float = 0.0,
        most_bytes: int = 0,
    ) -> None:
        self._model = model
        self._most_bytes = most_bytes
        self._options = options
        self._timeout_secs = timeout_secs
        self.placeholder = model.placeholder
        self.limit = model.limit
        self.search_id = model.search_id
        self.vocabulary = model.vocabulary
        self.settings = model.settings + repr(options).encode()

    def family(self, precision: Precision) -> Family:
        """See ``items.Medium``."""
        return self._model.family(precision)

    def weight(self, encoded: Encoded) -> int:
        """See ``items.Medium``."""
        return count_pixels(encoded)

    def process(self, encoded: Encoded, precision: Precision | None, split: Split) -> Processed:
        """See ``items.Medium``; the pixels live no longer than the call."""
        started = clock.monotonic()
        deadline = Deadline(self._timeout_secs, self.kind)
        family = self.family(precision or "float32")
        pixels = decode_image(encoded, self._options, deadline=deadline, alpha=family.alpha).pixels
        decode_secs = clock.monotonic() - started
        plan = family.plan(pixels.shape[0], pixels.shape[1])
        if precision is None:
            return Processed(plan, None, decode_secs)
        kind = STORAGE[precision]
        size = math.prod(plan.shape) * np.dtype(kind).itemsize
        if 0 < self._most_bytes < size:
            raise becomes_too_large(self.kind, self._most_bytes)
        out = np.empty(plan.shape, kind)
        family.fill(pixels, plan, out, _timed(split, deadline))
        out.flags.writeable = False
        return Processed(plan, out, decode_secs)


def _timed(split: Split, deadline: Deadline) -> Split:
    """``split`` that looks at the time before each range of rows."""

    def timed(rows: int, work: Callable[[int, int], None]) -> None:
        def checked(y0: int, y1: int) -> None:
            deadline.check()
            work(y0, y1)

        split(rows, checked)

    return timed
