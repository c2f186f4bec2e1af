"""The formats of a model whose checkpoint has a response template."""

import logging
from typing import Any

import msgspec

from smg.parsing.base import Start
from smg.parsing.declared.calls import DeclaredCalls
from smg.parsing.declared.edges import check
from smg.parsing.declared.template import CALLS, REASONING, Template, TemplateError, load
from smg.parsing.declared.text import DeclaredText
from smg.parsing.format import DECLARED, Format
from smg.parsing.reasoning.delimiters import Delimiters

logger = logging.getLogger(__name__)


class TextFactory(msgspec.Struct, frozen=True, eq=False):
    """Makes parsers of reasoning and answer. ``rules`` are the edges of reasoning, if they are literal."""

    template: Template
    rules: Delimiters | None = None
    together: bool = False

    def __call__(self, start: Start) -> DeclaredText:
        return DeclaredText(self.template, start, together=self.together)


class CallsFactory(msgspec.Struct, frozen=True, eq=False):
    """Makes parsers of calls."""

    template: Template

    def __call__(self, start: Start) -> DeclaredCalls:
        return DeclaredCalls(self.template, start)


class Declared(msgspec.Struct, frozen=True):
    """What a checkpoint declares. ``sealable``: markers can be told by their tokens, because no expression looks for
    them."""

    reasoning: Format
    tools: Format
    sealable: bool


def declared(given: Any, model: str) -> Declared | None:
    """The formats by the template that the tokenizer of ``model`` has; None when it has none, or one that cannot be
    used, which is logged."""
    if given is None:
        return None
    try:
        template = load(given)
        check(template)
    except TemplateError as error:
        logger.warning("the response template of %s is not used: %s", model, error)
        return None
    text = TextFactory(template, _rules(template))
    has_calls = any(field.name == CALLS and field.open is not None for field in template.fields)
    return Declared(
        Format(DECLARED, text, together=msgspec.structs.replace(text, together=True)),
        Format(DECLARED, CallsFactory(template) if has_calls else None),
        not template.has_patterns,
    )


def _rules(template: Template) -> Delimiters | None:
    for field in template.fields:
        if field.name in REASONING and field.open is not None and field.close is not None:
            openers, closers = field.open.literals, field.close.literals
            return Delimiters(openers, closers) if openers and closers else None
    return None
