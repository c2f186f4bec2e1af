"""What each model family makes of a recording: features, their number, and its place in the prompt (spec multimodal 9).

``FAMILIES`` is the table; the first match wins.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from smg.core.errors import bad_request
from smg.vision.audio.mel import spectrum
from smg.vision.families.base import Layout, Replacement, Tensor, Vocabulary, token_id
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial

F32: TypeAlias = NDArray[np.float32]

_LEAST = 1e-10


class AudioPlan(msgspec.Struct, frozen=True):
    """What one recording becomes: ``shape`` of its features, ``tokens`` in the prompt, ``frames`` of its spectrum."""

    shape: tuple[int, ...]
    tokens: int
    frames: int


class AudioConfig(msgspec.Struct, frozen=True):
    """The parsed ``config.json`` and the feature extractor's part of the processor's files."""

    model: Mapping[str, Any] = {}
    extractor: Mapping[str, Any] = {}

    def number(self, name: str, default: int) -> int:
        """A positive whole number of the feature extractor."""
        return _whole(self.extractor.get(name)) or default

    def encoder(self, name: str) -> int | None:
        """A positive whole number of the audio encoder's configuration, which some models keep inside the thinker's."""
        for place in (self._thinker(), self.model):
            section = place.get("audio_config")
            if isinstance(section, Mapping) and (found := _whole(section.get(name))):
                return found
        return None

    def token(self, name: str) -> int | None:
        """A token id of ``config.json``."""
        found = (place.get(name) for place in (self._thinker(), self.model))
        return next((value for value in found if isinstance(value, int) and value >= 0), None)

    def _thinker(self) -> Mapping[str, Any]:
        section = self.model.get("thinker_config")
        return section if isinstance(section, Mapping) else {}


class AudioFamily(ABC):
    """One family under one model's configuration; ``precision`` is the element type of its features."""

    name: ClassVar[str]
    placeholder: ClassVar[str]
    limit: ClassVar[int] = 10
    layout: ClassVar[Layout]
    keep_on_cpu: ClassVar[tuple[str, ...]] = ()
    # Whether the model does nothing but write down what is said.
    transcribes: ClassVar[bool] = False

    def __init__(self, config: AudioConfig, precision: Precision = "float32") -> None:
        self.config = config
        self.precision: Precision = precision
        self.rate = config.number("sampling_rate", 16_000)

    @abstractmethod
    def plan(self, samples: int) -> AudioPlan:
        """Plan a recording of so many samples at ``rate``. Raises GatewayError (400) for one that is too short."""

    @abstractmethod
    def features(self, samples: F32, plan: AudioPlan, split: Split = serial) -> F32:
        """The features of ``samples``, of the shape ``plan.shape``. CPU-bound."""

    @abstractmethod
    def side(self, plans: Sequence[AudioPlan]) -> dict[str, Tensor]:
        """The tensors that go with the primary one, by name."""

    def trimmed(self, samples: F32) -> F32:
        """The part of a recording that the model is given."""
        return samples

    def prompt(self, plan: AudioPlan, vocabulary: Vocabulary) -> Replacement:
        """Token ids that take the place of the recording's placeholder."""
        configured = self.config.token("audio_token_id")
        feature = token_id(vocabulary, self.placeholder) if configured is None else configured
        return Replacement([feature] * plan.tokens, feature)


class Qwen3Omni(AudioFamily):
    """Qwen3-Omni: Whisper's log-mel spectra of the recording's own length, thirteen tokens a second."""

    name = "qwen3_omni"
    placeholder = "<|audio_pad|>"
    layout = Layout("batched")
    # Samples below which a recording is filled up with silence.
    least: ClassVar[int] = 0

    def __init__(self, config: AudioConfig, precision: Precision = "float32") -> None:
        super().__init__(config, precision)
        self.bands = config.number("feature_size", config.encoder("num_mel_bins") or 128)
        self.size = config.number("n_fft", 400)
        self.hop = config.number("hop_length", 160)
        self.chunk = 2 * (config.encoder("n_window") or config.number("n_window", 50))
        self.min_samples = config.number("min_length", self.least)
        self.most = _truncation(config.extractor, self.rate)

    def trimmed(self, samples: F32) -> F32:
        kept = samples if self.most is None else samples[: self.most]
        missing = self.min_samples - len(kept)
        return np.concatenate([kept, np.zeros(missing, np.float32)]) if missing > 0 else kept

    def plan(self, samples: int) -> AudioPlan:
        frames = samples // self.hop
        if not frames:
            raise bad_request(f"the audio is too short: {samples} samples at {self.rate} Hz, {self.hop} are needed")
        tokens = frames // self.chunk * _thirds(self.chunk) + _thirds(frames % self.chunk)
        return AudioPlan((self.bands, frames), tokens, frames)

    def features(self, samples: F32, plan: AudioPlan, split: Split = serial) -> F32:
        padded = np.pad(samples, self.size // 2, mode="reflect")
        bands = spectrum(padded, plan.frames, self.size, self.hop, self.bands, self.rate, "power", split)
        logs = np.log10(np.maximum(bands, _LEAST)).astype(np.float32).T
        # Nothing is more than 80 dB below the loudest.
        out: F32 = (np.maximum(logs, logs.max() - np.float32(8.0)) + np.float32(4.0)) / np.float32(4.0)
        return out

    def side(self, plans: Sequence[AudioPlan]) -> dict[str, Tensor]:
        longest = max(plan.frames for plan in plans)
        mask = np.arange(longest)[None, :] < np.array([plan.frames for plan in plans])[:, None]
        return {
            "feature_attention_mask": mask.astype(np.int64),
            "audio_feature_lengths": np.array([plan.frames for plan in plans], np.int64),
        }


class Qwen3Asr(Qwen3Omni):
    """Qwen3-ASR: as Omni, but half a second at least."""

    name = "qwen3_asr"
    least = 8000
    transcribes = True


class InklingAudio(AudioFamily):
    """Inkling: the log-mel spectrum as discrete bins, one token for 50 ms."""

    name = "inkling"
    placeholder = "<|unused_200053|>"
    layout = Layout("flat", "tokens_per_item")
    bins: ClassVar[int] = 16
    lowest: ClassVar[float] = -7.0
    highest: ClassVar[float] = 2.0
    # Root of the mean square to which quieter recordings are made louder.
    loudness: ClassVar[float] = 0.01

    def __init__(self, config: AudioConfig, precision: Precision = "float32") -> None:
        super().__init__(config, precision)
        self.bands = config.number("feature_size", 80)
        step = config.extractor.get("audio_token_duration_s")
        factor = config.extractor.get("window_size_multiplier")
        self.hop = round((step if isinstance(step, float) and step > 0 else 0.05) * self.rate)
        self.size = round((factor if isinstance(factor, float) and factor >= 1 else 2.0) * self.hop)

    def plan(self, samples: int) -> AudioPlan:
        tokens = -(-samples // self.hop)
        return AudioPlan((tokens, self.bands), tokens, tokens)

    def features(self, samples: F32, plan: AudioPlan, split: Split = serial) -> F32:
        loudness = math.sqrt(float(np.mean(np.square(samples, dtype=np.float64))))
        if 0 < loudness < self.loudness:
            samples = samples * np.float32(self.loudness / loudness)
        padded = np.pad(samples, (self.size - self.hop, plan.frames * self.hop - len(samples)))
        bands = spectrum(padded, plan.frames, self.size, self.hop, self.bands, self.rate, "magnitude", split)
        logs = np.log10(np.maximum(bands, _LEAST)).clip(self.lowest, self.highest)
        scaled = (logs - self.lowest) * ((self.bins - 1) / (self.highest - self.lowest))
        # The nearest bin; half-way between two it is the lower one.
        return np.ceil(scaled - 0.5).clip(0, self.bins - 1).astype(np.float32)

    def side(self, plans: Sequence[AudioPlan]) -> dict[str, Tensor]:
        return {"tokens_per_item": np.array([plan.tokens for plan in plans], np.int64)}


def find_family(name: str, model: Mapping[str, Any]) -> type[AudioFamily] | None:
    """The family of the model called ``name`` with this ``config.json``; None when it takes no audio we know of."""
    lowered = name.lower()
    declared = model.get("model_type")
    for family, types, names in FAMILIES:
        if declared in types or (not declared and any(part in lowered for part in names)):
            return family if family is not InklingAudio or _hears(model) else None
    return None


def _hears(model: Mapping[str, Any]) -> bool:
    """Whether an Inkling model has been given ears."""
    section = model.get("audio_config")
    return isinstance(section, Mapping) and section.get("decoder_dmodel") is not None


def _thirds(frames: int) -> int:
    """Frames after three convolutions of stride 2."""
    for _ in range(3):
        frames = -(-frames // 2)
    return frames


def _truncation(extractor: Mapping[str, Any], rate: int) -> int | None:
    """Samples that are kept at most; None: all."""
    if found := _whole(extractor.get("max_samples")):
        return found
    if extractor.get("truncation") is not True:
        return None
    chunk = _whole(extractor.get("chunk_length"))
    return _whole(extractor.get("n_samples")) or (chunk * rate if chunk else None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


FAMILIES: tuple[tuple[type[AudioFamily], frozenset[str], tuple[str, ...]], ...] = (
    (InklingAudio, frozenset({"inkling_mm_model"}), ("inkling",)),
    (Qwen3Asr, frozenset({"qwen3_asr"}), ("qwen3-asr", "qwen3_asr")),
    (Qwen3Omni, frozenset({"qwen3_omni_moe", "qwen3_omni_moe_thinker"}), ("qwen3-omni", "qwen3_omni")),
)
