"""Audio as a medium: what recordings mean to one model, by the files beside its tokenizer (spec multimodal 5, 9)."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from blake3 import blake3

from smg.core import clock
from smg.core.media import Encoded
from smg.vision.audio.decode import AudioLimits, decode_audio
from smg.vision.audio.families import AudioConfig, AudioFamily, find_family
from smg.vision.audio.resample import resample
from smg.vision.cache import Processed
from smg.vision.families.base import token_id
from smg.vision.model import Files, Tokens, Vocabulary
from smg.vision.normalise import Precision, stored
from smg.vision.pool import Split

# Pixels that cost as much as one byte of a compressed recording, about.
_WEIGHT = 4


class AudioMedium:
    """Recordings to one model (``items.Medium``).

    Raises:
        GatewayError: ``invalid_multimodal_request`` when the vocabulary has no placeholder.
    """

    kind = "audio"

    def __init__(self, family: type[AudioFamily], files: Files, tokens: Tokens, limits: AudioLimits) -> None:
        self._kind = family
        self._limits = limits
        self._config = AudioConfig(files["config.json"], _extractor(files))
        self._made: dict[Precision, AudioFamily] = {}
        self.vocabulary = Vocabulary(tokens)
        self.placeholder = family.placeholder
        self.limit = family.limit
        self.transcribes = family.transcribes
        self.search_id = token_id(self.vocabulary, family.placeholder)
        self.settings = blake3(json.dumps([family.name, files], sort_keys=True).encode()).digest()

    def family(self, precision: Precision) -> AudioFamily:
        """See ``items.Medium``."""
        made = self._made.get(precision)
        if made is None:
            made = self._made[precision] = self._kind(self._config, precision)
        return made

    def weight(self, encoded: Encoded) -> int:
        """See ``items.Medium``; estimated from the size, as a recording tells its length only when it is read."""
        return len(encoded) * _WEIGHT

    def process(self, encoded: Encoded, precision: Precision | None, split: Split) -> Processed:
        """See ``items.Medium``."""
        started = clock.monotonic()
        clip = decode_audio(encoded, self._limits)
        decode_secs = clock.monotonic() - started
        family = self.family(precision or "float32")
        samples = family.trimmed(resample(clip.samples, clip.rate, family.rate, split))
        plan = family.plan(len(samples))
        if precision is None:
            return Processed(plan, None, decode_secs)
        out = np.ascontiguousarray(stored(family.features(samples, plan, split), precision))
        out.flags.writeable = False
        return Processed(plan, out, decode_secs)


def audio_medium(name: str, files: Files, tokens: Tokens, limits: AudioLimits) -> AudioMedium | None:
    """The medium of the model called ``name``; None when it takes no audio. Raises GatewayError as ``AudioMedium``."""
    family = find_family(name, files["config.json"])
    return None if family is None else AudioMedium(family, files, tokens, limits)


def _extractor(files: Files) -> Mapping[str, Any]:
    """The feature extractor's part, which newer checkpoints keep inside ``processor_config.json``."""
    inner = files.get("processor_config.json", {}).get("feature_extractor")
    return {**(inner if isinstance(inner, Mapping) else {}), **files.get("preprocessor_config.json", {})}
