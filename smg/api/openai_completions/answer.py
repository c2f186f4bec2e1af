"""The buffered answer: the accumulated events as one ``text_completion`` (spec text-pipeline 12)."""

import math

from msgspec import UNSET

from smg.api.dialect import Meta
from smg.api.openai_completions.decode import CompletionOptions
from smg.api.openai_completions.echo import echoed
from smg.api.openai_completions.logprobs import OutputLogprobs, prompt_logprobs
from smg.api.openai_completions.types import Completion, CompletionChoice, CompletionLogprobs
from smg.api.openai_parts import usage
from smg.pipeline.accumulator import Answer, AnswerChoice


def completion(identity: str, meta: Meta, options: CompletionOptions, answer: Answer) -> Completion:
    """The body. Of each prompt's choices the best are kept, when more were generated than are returned."""
    generated = meta.request.n
    choices = []
    for number in range(len(answer.choices) // generated):
        made = answer.choices[number * generated : (number + 1) * generated]
        if options.n < generated:
            made = sorted(made, key=_mean, reverse=True)[: options.n]
        prompt = echoed(meta.request, number, meta.decoder) if options.echo else ""
        choices += [
            _choice(number * options.n + place, choice, prompt, meta, options) for place, choice in enumerate(made)
        ]
    return Completion(identity, "text_completion", meta.created, meta.model, choices, usage(answer.usage))


def _mean(choice: AnswerChoice) -> float:
    """Mean log probability per token."""
    values = [row.logprob for row in choice.logprobs if row.logprob is not None]
    return sum(values) / len(values) if values else -math.inf


def _choice(index: int, choice: AnswerChoice, prompt: str, meta: Meta, options: CompletionOptions) -> CompletionChoice:
    assert choice.finish is not None
    matched = choice.finish.matched_stop
    return CompletionChoice(
        text=prompt + choice.text,
        index=index,
        logprobs=_logprobs(choice, prompt, meta) if options.logprobs else None,
        finish_reason=choice.finish.reason,
        matched_stop=UNSET if matched is None else matched,
    )


def _logprobs(choice: AnswerChoice, prompt: str, meta: Meta) -> CompletionLogprobs:
    out = prompt_logprobs(choice.prompt_logprobs, prompt, meta.decoder)
    skip = meta.request.skip_special_tokens
    more = OutputLogprobs(meta.decoder, len(prompt), skip_special_tokens=skip).take(choice.logprobs)
    out.tokens += more.tokens
    out.token_logprobs += more.token_logprobs
    out.top_logprobs += more.top_logprobs
    out.text_offset += more.text_offset
    return out
