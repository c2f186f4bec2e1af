"""From a GenerateRequest to jobs: every field is honoured or refused, none silently ignored.

``skip_special_tokens``, ``spaces_between_special_tokens`` and ``include_stop_str_in_output`` only matter to engines
that turn ids into text; this one does not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from smg.engine_server.llama.guidance import Matcher
from smg.engine_server.llama.job import Event, Job
from smg.engine_server.llama.model import Model
from smg.engine_server.llama.sampling import Params

MAX_CHOICES = 64
MAX_LOGPROBS = 20
# Candidates in all rows of prompt_logprobs together (some 130 MB on the wire).
MAX_PROMPT_CANDIDATES = 16 << 20


class Refused(Exception):
    """A request that can't be served: ``status`` and a message for the client."""

    def __init__(self, message: str, status: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def jobs_of(
    request: Any, model: Model, sink: Callable[[Job, Event], None], matcher: Matcher | None = None
) -> list[Job]:
    """Make one job per choice; ``matcher`` is the compiled constraint. Raises Refused."""
    prompt = prompt_of(request, model)
    sampling = request.sampling_params
    stops = frozenset(id for id in sampling.stop_token_ids if id < model.vocab_size)
    eos: int | None = None
    if not sampling.ignore_eos and model.end_ids:
        eos = model.end_ids[0]
        stops = (stops | frozenset(model.end_ids[1:])) - {eos}
    room = model.context_length - len(prompt)
    limit = min(sampling.max_tokens, room) if sampling.HasField("max_tokens") else room
    held = stops if eos is None else stops | {eos}
    jobs: list[Job] = []
    for index in range(sampling.n or 1):
        job = Job(
            prompt,
            _params(sampling, index, held, model.vocab_size),
            sink,
            limit=limit,
            eos=eos,
            stops=stops,
            index=index,
            candidates=sampling.logprobs if sampling.HasField("logprobs") else None,
            scored=_scored(sampling, prompt, model),
            matcher=matcher.copy() if matcher is not None else None,
            leader=jobs[0] if jobs else None,
        )
        jobs.append(job)
    return jobs


def prompt_of(request: Any, model: Model) -> Sequence[int]:
    """Check and return the prompt ids of a GenerateRequest or EmbedRequest. Raises Refused."""
    prompt = _ids(request, model)
    if not prompt:
        raise Refused("the prompt is empty")
    if len(prompt) >= model.context_length:
        raise Refused(
            f"the prompt has {len(prompt)} tokens, which leaves no room in the context of {model.context_length}"
        )
    if max(prompt) >= model.vocab_size:
        raise Refused(f"token id {max(prompt)} is outside the vocabulary of {model.vocab_size}")
    return prompt


def _ids(request: Any, model: Model) -> list[int]:
    if "text" in request.DESCRIPTOR.fields_by_name and request.WhichOneof("input") == "text":
        return model.tokenize(request.text)
    return list(request.tokenized.input_ids)


def _scored(sampling: Any, prompt: Sequence[int], model: Model) -> int | None:
    if not sampling.HasField("prompt_logprobs"):
        return None
    _within("prompt_logprobs", sampling.prompt_logprobs, -1, MAX_LOGPROBS)
    if sampling.prompt_logprobs < 0 and len(prompt) * model.vocab_size > MAX_PROMPT_CANDIDATES:
        raise Refused(
            f"prompt_logprobs of the whole vocabulary is for prompts of at most "
            f"{MAX_PROMPT_CANDIDATES // model.vocab_size} tokens, this one has {len(prompt)}"
        )
    return int(sampling.prompt_logprobs)


def refuse_unsupported(request: Any) -> None:
    """Raise Refused when ``request`` asks for what this engine does not have."""
    sampling = request.sampling_params
    unsupported = {
        "stop strings (send stop_token_ids)": sampling.stop,
        "truncate_prompt_tokens": sampling.HasField("truncate_prompt_tokens"),
        "multimodal input": request.HasField("mm_inputs") or request.extra_mm_inputs or request.HasField("media_refs"),
        "KV transfer": request.HasField("kv_transfer_params") or request.HasField("kv_transfer_params_json"),
    }
    for feature, present in unsupported.items():
        if present:
            raise Refused(f"this engine does not support {feature}", grpc.StatusCode.UNIMPLEMENTED)
    if request.data_parallel_rank:
        raise Refused("this engine has data-parallel rank 0 only")


def _params(sampling: Any, index: int, held: frozenset[int], vocab_size: int) -> Params:
    """Check the numbers and fill in neutral ones: a zero top_p, repetition_penalty or n means it was not set."""
    _within("temperature", sampling.temperature, 0, 100)
    _within("top_p", sampling.top_p, 0, 1)
    _within("min_p", sampling.min_p, 0, 1)
    _within("frequency_penalty", sampling.frequency_penalty, -2, 2)
    _within("presence_penalty", sampling.presence_penalty, -2, 2)
    _within("repetition_penalty", sampling.repetition_penalty, 0, 100)
    _within("n", sampling.n, 0, MAX_CHOICES)
    if sampling.HasField("max_tokens"):
        _within("max_tokens", sampling.max_tokens, 1, float("inf"))
        _within("min_tokens", sampling.min_tokens, 0, sampling.max_tokens)
    if sampling.HasField("logprobs"):
        _within("logprobs", sampling.logprobs, -1, MAX_LOGPROBS)
    for token, bias in sampling.logit_bias.items():
        _within("logit_bias token ids", token, 0, vocab_size - 1)
        _within("logit_bias values", bias, -100, 100)
    return Params(
        temperature=sampling.temperature if sampling.HasField("temperature") else 1.0,
        top_p=sampling.top_p or 1.0,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty or 1.0,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        # Each choice draws for itself, reproducibly: vLLM counts the seed up too.
        seed=sampling.seed + index if sampling.HasField("seed") else None,
        logit_bias=dict(sampling.logit_bias),
        min_tokens=sampling.min_tokens,
        held_ids=held,
    )


def _within(name: str, value: float, low: float, high: float) -> None:
    # Written so that NaN is refused too.
    if not low <= value <= high:
        raise Refused(f"{name} must be between {low:.10g} and {high:.10g}, got {value:.10g}")
