"""What an engine can do, as feature names (spec engine-contract 9).

An adapter lists what its contract offers; an engine may tell that it has less. The difference is published with the
worker, and routing sends a request only where its needs are met.
"""

from collections.abc import Mapping

from smg.engines.base import EngineInfo
from smg.engines.http.routes import ROUTES

# The kinds of ``core.request.Constraint``; each is a feature of the same name.
CONSTRAINTS = frozenset({"json_schema", "json_object", "regex", "grammar", "structural_tag", "choice"})

# What only a model with vision is given.
VISION = frozenset({"image", "video"})

# What a Generate request may ask for.
_REQUEST: Mapping[str, str] = {
    "generate": "text generation",
    "n": "several choices of one request (`n`)",
    "seed": "a seed for sampling",
    "logit_bias": "a bias on token ids",
    "min_tokens": "a minimum of generated tokens",
    "logprobs": "log probabilities of the output",
    "prompt_logprobs": "log probabilities of the prompt",
    "json_schema": "output that follows a JSON schema",
    "json_object": "output that is any JSON object",
    "regex": "output that matches a regular expression",
    "grammar": "output that follows an EBNF grammar",
    "structural_tag": "output with structural tags",
    "choice": "output that is one of a list",
    "lora": "a LoRA adapter for each request",
    "dp_rank": "a pin to a data-parallel rank",
    "disaggregation": "prefill and decode on separate engines",
    "image": "image input",
    "audio": "audio input",
    "video": "video input",
    "mixed_media": "media of several kinds in one request",
}

# What else an engine may offer.
_SERVICE: Mapping[str, str] = {
    "embed": "embeddings",
    "encode": "embeddings of media for other engines",
    "loads": "load reports",
    "tokenizer_bundle": "its tokenizer files",
    "flush_cache": "flushing the prefix cache",
    "profile": "starting and stopping a profile",
    "kv_events": "events of its KV cache",
}

# What engine contracts know, and what HTTP engines serve.
CONTRACT_FEATURES: Mapping[str, str] = {**_REQUEST, **_SERVICE}
FEATURES: Mapping[str, str] = {**CONTRACT_FEATURES, **{route.feature: route.text for route in ROUTES}}


def offered(contract: frozenset[str], info: EngineInfo) -> frozenset[str]:
    """Features of one engine: its contract's, less what ``info`` tells that it lacks.

    An engine whose model does not generate keeps what has nothing to do with generation.
    """
    lacks = info.lacks if info.is_generation else info.lacks | _REQUEST.keys()
    return contract - lacks
