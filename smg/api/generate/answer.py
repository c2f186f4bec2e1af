"""The buffered answer: one object, or a list of them for several prompts or choices."""

from smg.api.generate.facts import Facts, known
from smg.api.generate.types import Generated
from smg.core.events import Usage
from smg.pipeline.accumulator import Answer, AnswerChoice


def generated(facts: Facts, answer: Answer) -> Generated | list[Generated]:
    """The body."""
    whole = [_one(facts, index, choice, answer.usage) for index, choice in enumerate(answer.choices)]
    return whole if facts.options.several else whole[0]


def _one(facts: Facts, index: int, choice: AnswerChoice, usage: Usage) -> Generated:
    info = facts.info(index, usage, len(choice.ids), choice.finish)
    if facts.probs:
        prompt, rows = facts.wanted(choice.prompt_logprobs), known(choice.logprobs)
        info.input_token_logprobs, info.output_token_logprobs = facts.tokens(prompt), facts.tokens(rows)
        if facts.top:
            info.input_top_logprobs, info.output_top_logprobs = facts.tops(prompt), facts.tops(rows)
    return Generated(choice.text, choice.ids, info)
