"""Sampling, output and guided decoding of the TensorRT-LLM contract (spec engine-contract 2.3, 2.4 and 3.4)."""

from smg_grpc_proto import trtllm_service_pb2 as pb

from smg.core.backends import EngineRequest
from smg.core.errors import bad_request
from smg.core.request import Constraint
from smg.engines import constraints, numbers
from smg.engines.contract import unsupported

_GUIDES = {
    "json_schema": pb.GuidedDecodingParams.GUIDE_TYPE_JSON_SCHEMA,
    "regex": pb.GuidedDecodingParams.GUIDE_TYPE_REGEX,
    "grammar": pb.GuidedDecodingParams.GUIDE_TYPE_EBNF_GRAMMAR,
    "structural_tag": pb.GuidedDecodingParams.GUIDE_TYPE_STRUCTURAL_TAG,
}


def sampling_config(request: EngineRequest) -> pb.SamplingConfig:
    """Build the message; penalties and min_p stay unset where the client said nothing. Raises GatewayError (400)."""
    given = request.sampling
    return pb.SamplingConfig(
        beam_width=1,
        num_return_sequences=numbers.choices(request),
        top_k=numbers.top_k(request, off=0),
        top_p=numbers.top_p(request),
        seed=numbers.seed64(request),
        temperature=numbers.temperature(request),
        min_tokens=numbers.min_tokens(request) or None,
        repetition_penalty=numbers.repetition_penalty(request),
        presence_penalty=None if given.presence_penalty is None else numbers.presence_penalty(request),
        frequency_penalty=None if given.frequency_penalty is None else numbers.frequency_penalty(request),
        min_p=None if given.min_p is None else numbers.min_p(request),
    )


def output_config(request: EngineRequest) -> pb.OutputConfig:
    """Build the message. Asking for one candidate at least makes sure that 0 is not taken for none at all."""
    config = pb.OutputConfig(exclude_input_from_output=True)
    if request.logprobs is not None:
        config.logprobs = max(1, request.logprobs.top)
        if request.logprobs.prompt:
            config.prompt_logprobs = max(1, request.logprobs.top)
    return config


def max_tokens(request: EngineRequest) -> int:
    """The limit, which this contract requires. Raises GatewayError (400) when there is none, or it is 0."""
    limit = numbers.max_tokens(request)
    if limit is None:
        raise bad_request("is required: the engine does not tell how long its context is", "max_tokens")
    if limit == 0:
        raise bad_request("must be at least 1", "max_tokens")
    return limit


def guided_decoding(constraint: Constraint) -> pb.GuidedDecodingParams:
    """Build the message. Raises GatewayError (400)."""
    if constraint.kind == "json_object":
        return pb.GuidedDecodingParams(guide_type=pb.GuidedDecodingParams.GUIDE_TYPE_JSON)
    narrowed = constraints.narrowed(constraint)
    return pb.GuidedDecodingParams(guide_type=_GUIDES[narrowed.kind], guide=narrowed.value)


def embedding_bias(request: EngineRequest) -> list[float]:
    """``logit_bias`` as a vector over the whole vocabulary, empty for none.

    Raises:
        GatewayError: the vocabulary's size is not known, or a token is outside it (400).
    """
    biases = numbers.logit_bias(request)
    if not biases:
        return []
    if not request.vocab_size:
        raise unsupported("logit_bias", "logit_bias, because it does not tell the size of its vocabulary")
    vector = [0.0] * request.vocab_size
    for token, bias in biases.items():
        vector[token] = bias
    return vector


def lora_config(adapter: str) -> pb.LoraConfig:
    """Build the message: adapters are numbered here. Raises GatewayError (400) for a name that is no number."""
    if not (adapter.isascii() and adapter.isdigit() and int(adapter) < 2**63):
        raise bad_request("the engine knows LoRA adapters by their task number only", "lora_path")
    return pb.LoraConfig(task_id=int(adapter))
