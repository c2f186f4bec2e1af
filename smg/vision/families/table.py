"""Which family serves a model. First match wins, so narrower names come before wider ones (spec multimodal 6)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from smg.vision.families.base import Family
from smg.vision.families.gemma3 import Gemma3
from smg.vision.families.idefics3 import Idefics3, SmolVLM
from smg.vision.families.inkling import Inkling
from smg.vision.families.internvl import InternVL
from smg.vision.families.kimi import KimiK3, KimiK25
from smg.vision.families.llama4 import Llama4
from smg.vision.families.llava import Llava
from smg.vision.families.llava_next import LlavaNext, LlavaOnevision
from smg.vision.families.mllama import Mllama
from smg.vision.families.phi import Phi3Vision, Phi4Multimodal
from smg.vision.families.pixtral import Mistral3, Pixtral
from smg.vision.families.qwen_vl import Glm4V, Qwen2VL, Qwen3Omni, Qwen3VL


class Row(NamedTuple):
    """``types`` are values of ``model_type``; each of ``names`` is a set of parts of a lower-cased model name."""

    family: type[Family]
    types: frozenset[str]
    names: tuple[tuple[str, ...], ...] = ()


FAMILIES: tuple[Row, ...] = (
    Row(Inkling, frozenset({"inkling_mm_model"}), (("inkling",),)),
    Row(KimiK3, frozenset({"kimi_k3"}), (("kimi", "k3"),)),
    Row(KimiK25, frozenset({"kimi_k25"}), (("kimi", "k2.5"), ("kimi", "k25"))),
    Row(Llama4, frozenset({"llama4"}), (("llama-4",), ("llama4",))),
    Row(Mllama, frozenset({"mllama"}), (("llama-3.2", "vision"),)),
    Row(LlavaOnevision, frozenset({"llava_onevision"}), (("llava-onevision",), ("llava_onevision",))),
    Row(LlavaNext, frozenset({"llava_next"}), (("llava-next",), ("llava_next",), ("llava-v1.6",))),
    Row(Llava, frozenset({"llava"}), (("llava",),)),
    Row(
        Qwen3Omni,
        frozenset({"qwen3_omni_moe", "qwen3_omni_moe_thinker"}),
        (("qwen3-omni",), ("qwen3_omni",)),
    ),
    Row(
        Qwen3VL,
        frozenset({"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}),
        (("qwen3", "vl"), ("qwen3.5",), ("qwen3.6",)),
    ),
    Row(Qwen2VL, frozenset({"qwen2_vl", "qwen2_5_vl"}), (("qwen", "vl"),)),
    Row(Phi4Multimodal, frozenset({"phi4mm", "phi4_multimodal"}), (("phi-4-multimodal",),)),
    Row(Phi3Vision, frozenset({"phi3_v"}), (("phi", "vision"),)),
    Row(Pixtral, frozenset({"pixtral"}), (("pixtral",),)),
    Row(Mistral3, frozenset({"mistral3"})),
    Row(Gemma3, frozenset({"gemma3"})),
    Row(Glm4V, frozenset({"glm4v", "glm4v_moe", "glm46v"})),
    Row(InternVL, frozenset({"internvl"})),
    Row(SmolVLM, frozenset({"smolvlm"}), (("smolvlm",),)),
    Row(Idefics3, frozenset({"idefics3"}), (("idefics3",),)),
)


def find_family(model: str, config: Mapping[str, Any]) -> type[Family] | None:
    """The family of a model by its name and its ``config.json``; None when it takes no images that we know of.

    The declared ``model_type`` decides where it is known; names are for configurations that lack it, such as bundles
    of engines that only serve text files.
    """
    declared = config.get("model_type")
    for row in FAMILIES:
        if declared in row.types:
            return row.family if row.family.serves(config) else None
    if isinstance(declared, str) and declared and "vision_config" not in config:
        return None
    name = model.lower()
    for row in FAMILIES:
        if any(all(part in name for part in parts) for parts in row.names):
            return row.family if row.family.serves(config) else None
    return None
