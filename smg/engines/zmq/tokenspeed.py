"""Messages of TokenSpeed's scheduler: arrays that begin with their type's name (spec engine-contract 6.6).

Fields go by position, and later versions append some: what is not there has its default, what is not known is passed
over. The scheduler knows the model's end tokens by itself.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.engines import constraints, numbers
from smg.engines.base import EngineLoad
from smg.engines.capabilities import CONSTRAINTS
from smg.engines.contract import unsupported
from smg.engines.zmq.frames import Step, Told, check, child
from smg.engines.zmq.tensors import Behind
from smg.engines.zmq.tokenspeed_media import multimodal_inputs

# "Off" for top_k, as the engine itself writes it.
_ALL = 1 << 30
_FINISHES = frozenset({"stop", "length", "abort", "error"})
_INT64 = 2**63 - 1
# Embeddings in place of ids, session, processor of logits; hidden states; time of arrival; the meeting place of a pair;
# more ids, more of anything, and the ids before they stood for media: none of it.
_BEFORE_MEDIA = (None, None, None, False, 0.0, None, None, None, None, None, None)
_encoder = msgspec.msgpack.Encoder()


class _Columns(msgspec.Struct, array_like=True, tag="BatchTokenIDOutSlim"):
    """What one step brought: columns with a place for each request. The last ones are the load, where it is told."""

    rids: list[str]
    output_ids: list[list[int]]
    finished_reasons: list[str]
    prompt_tokens: list[int]
    completion_tokens: list[int]
    cached_tokens: list[int]
    logprob_values: list[list[float]]
    logprob_ids: list[list[int]]
    engine_index: int = 0
    running: int = 0
    waiting: int = 0
    active_pages: int = 0
    total_pages: int = 0


class _Output(msgspec.Struct):
    """The columns' values of one request."""

    ids: list[int]
    finish: str
    prompt_tokens: int
    cached_tokens: int
    logprob_values: list[float]
    logprob_ids: list[int]


_decoder = msgspec.msgpack.Decoder(_Columns)


class TokenSpeedWire:
    """The ``Wire`` of a TokenSpeed scheduler."""

    runtime: ClassVar[str] = "tokenspeed"
    capabilities: ClassVar[frozenset[str]] = CONSTRAINTS | {
        "generate",
        "n",
        "seed",
        "logit_bias",
        "min_tokens",
        "logprobs",
        "image",
        "audio",
        "video",
        "mixed_media",
        "dp_rank",
    }

    def add(self, request: EngineRequest, choice: int, client: int, told: Told) -> list[Any]:
        """See ``Wire.add``. The scheduler answers to one address, so that ``client`` is nothing to it."""
        check(request, told.longest)
        wanted = request.logprobs
        if wanted is not None and wanted.prompt:
            raise unsupported("logprobs", "log probabilities of the prompt")
        if wanted is not None and wanted.top:
            raise unsupported("top_logprobs", "log probabilities of other tokens than the sampled one")
        fields: list[Any] = [
            "TokenizedGenerateReqInput",
            child(request, choice),
            *(None, None),  # where in-process servers want the answer, and the prompt's text
            list(request.ids),
            _sampling(request, choice, told.longest),
            wanted is not None,
            -1,  # log probabilities from which prompt token on: none
            0,  # of how many other tokens
            None,  # of which tokens
            True,  # streamed
        ]
        behind = Behind()
        if request.media is not None:
            fields += [*_BEFORE_MEDIA, multimodal_inputs(request.media, behind)]
        return [_encoder.encode(fields), *behind.frames]

    def step(self, frames: Sequence[bytes]) -> Step:
        """See ``Wire.step``. A message whose columns differ in length cannot be trusted, and is none."""
        try:
            columns = _decoder.decode(frames[0])
            rows = list(
                zip(
                    columns.rids,
                    columns.output_ids,
                    columns.finished_reasons,
                    columns.prompt_tokens,
                    columns.completion_tokens,
                    columns.cached_tokens,
                    columns.logprob_values,
                    columns.logprob_ids,
                    strict=True,
                )
            )
        except (msgspec.MsgspecError, ValueError, IndexError) as error:
            raise ValueError(str(error)) from None
        outputs: list[tuple[str, Any]] = [
            (rid, _Output(ids, finish, prompt, cached, values, tokens))
            for rid, ids, finish, prompt, _, cached, values, tokens in rows
        ]
        return Step(outputs, _load(columns))

    def tokens(self, output: Any) -> tuple[list[int], int, int] | None:
        """See ``Wire.tokens``."""
        assert isinstance(output, _Output)
        if output.finish or output.logprob_ids:
            return None
        return output.ids, max(output.prompt_tokens, 0), max(output.cached_tokens, 0)

    def batch(self, output: Any, choice: int, request: EngineRequest, frames: Sequence[bytes]) -> TokenBatch:
        """See ``Wire.batch``."""
        assert isinstance(output, _Output)
        made = TokenBatch(
            index=choice,
            ids=output.ids,
            prompt_tokens=max(output.prompt_tokens, 0),
            cached_tokens=max(output.cached_tokens, 0),
        )
        if output.finish:
            made.finish = output.finish if output.finish in _FINISHES else "stop"
            if made.finish == "stop" and output.ids and output.ids[-1] in request.stop_ids:
                made.matched_stop = output.ids[-1]
        if request.logprobs is not None and output.logprob_ids:
            pairs = zip(output.logprob_ids, output.logprob_values, strict=True)
            made.logprobs = [TokenLogprobs(token, value) for token, value in pairs]
        return made


def _sampling(request: EngineRequest, choice: int, longest: int) -> list[Any]:
    """All 29 positions of the sampling parameters, normalized as the scheduler's own frontend does it."""
    limit = numbers.max_tokens(request)
    temperature, top_k = numbers.temperature(request), numbers.top_k(request, off=_ALL)
    if temperature == 0.0:
        temperature, top_k = 1.0, 1
    seed = request.sampling.seed
    bias = {str(token): value for token, value in numbers.logit_bias(request).items()}
    return [
        limit if limit is not None else max(longest - len(request.ids), 1),
        None,  # stop strings: the gateway matches text itself
        numbers.stop_ids(request),
        temperature,
        numbers.top_p(request),
        top_k,
        numbers.min_p(request),
        numbers.frequency_penalty(request),
        numbers.presence_penalty(request),
        numbers.repetition_penalty(request),
        numbers.min_tokens(request),
        *_constraint(request),
        request.ignore_eos,
        *(True, True),  # how special tokens become text, which is not done there
        True,  # the token that ends a choice stays: the gateway hides it itself
        *(None, None, None),  # thinking budget, custom parameters, tokens per message
        bias or None,
        None if seed is None else (seed + choice) & _INT64,
        None,  # log probabilities have their own fields
        1,  # choices
        *([], 0),  # stop strings once more, normalized
        True,  # all of this is normalized
    ]


def _constraint(request: EngineRequest) -> tuple[str | None, str | None, str | None, str | None]:
    """JSON schema, regular expression, grammar and structural tag; one of them at most."""
    if request.constraint is None:
        return None, None, None, None
    found = constraints.narrowed(request.constraint)
    schema, regex, grammar, tag = (
        found.value if found.kind == kind else None for kind in ("json_schema", "regex", "grammar", "structural_tag")
    )
    return schema, regex, grammar, tag


def _load(columns: _Columns) -> EngineLoad | None:
    """The load at the end of the message; None from schedulers that do not tell."""
    if columns.total_pages <= 0:
        return None
    return EngineLoad(
        dp_rank=max(columns.engine_index, 0),
        running=columns.running,
        waiting=columns.waiting,
        usage=columns.active_pages / columns.total_pages,
    )
