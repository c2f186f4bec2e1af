"""The wire types of the native generate route: the body, and the buffered answer."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from smg.api.prompts import IdPrompt, TextPrompt
from smg.api.sampling import Count, SamplingBody, Unsupported

MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
# What generates at most when the client says nothing, as SGLang's own default.
DEFAULT_MAX_TOKENS = 128

# [log probability or null, token id, text or null]
TokenLogprob: TypeAlias = tuple[float | None, int, str | None]


class SamplingParams(SamplingBody):
    """SGLang's names where they differ from OpenAI's."""

    max_new_tokens: Count | None = None
    min_new_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    json_schema: str | dict[str, Any] | None = None
    structural_tag: str | dict[str, Any] | None = None


class GenerateBody(msgspec.Struct):
    """The body: exactly one of ``text`` and ``input_ids`` is the prompt, or a list of prompts.

    ``logprob_start_len`` is the first prompt token whose log probability is returned, -1 for none.
    ``stream_output`` ``incremental`` makes frames carry only what is new. ``image_data``, ``audio_data`` or
    ``video_data`` are the media for the placeholders that the prompt has (``attachments.media``).
    """

    text: TextPrompt | None = None
    input_ids: IdPrompt | None = None
    sampling_params: SamplingParams | None = None
    model: str | None = None
    stream: bool | None = None
    stream_output: Literal["cumulative", "incremental"] | None = None
    rid: str | list[str] | None = None
    return_logprob: bool | None = None
    logprob_start_len: Annotated[int, Meta(ge=-1)] | None = None
    top_logprobs_num: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    return_text_in_logprobs: bool | None = None
    data_parallel_rank: Count | None = None
    image_data: str | dict[str, Any] | list[Any] | None = None
    audio_data: str | dict[str, Any] | list[Any] | None = None
    video_data: str | dict[str, Any] | list[Any] | None = None

    token_ids_logprob: Unsupported = None
    input_embeds: Unsupported = None
    lora_path: Unsupported = None
    lora_id: Unsupported = None
    custom_logit_processor: Unsupported = None
    return_hidden_states: Unsupported = None
    session_params: Unsupported = None
    bootstrap_host: Unsupported = None
    bootstrap_port: Unsupported = None
    bootstrap_room: Unsupported = None


class FinishReason(msgspec.Struct):
    """``length`` is the number of tokens at which a generation of type length ended; ``matched`` what stopped one."""

    type: str
    matched: int | str | UnsetType | None = UNSET
    length: int | UnsetType = UNSET


class MetaInfo(msgspec.Struct):
    """Facts of one generation; ``e2e_latency`` is in seconds and comes with the end.

    Lists of log probabilities are there when they were asked for; top lists have one list per token.
    """

    id: str
    finish_reason: FinishReason | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    weight_version: str
    matched_stop: int | str | UnsetType = UNSET
    e2e_latency: float | UnsetType = UNSET
    input_token_logprobs: list[TokenLogprob] | UnsetType = UNSET
    input_top_logprobs: list[list[TokenLogprob] | None] | UnsetType = UNSET
    output_token_logprobs: list[TokenLogprob] | UnsetType = UNSET
    output_top_logprobs: list[list[TokenLogprob] | None] | UnsetType = UNSET


class Generated(msgspec.Struct):
    """One generation; of several prompts or choices the answer is a list of these."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET
