"""Which formats a model uses: as the settings say, as its template and vocabulary show, or by its name (spec parsers
2)."""

import logging
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from smg.config.load import SettingsError
from smg.config.settings import ModelSettings, Settings
from smg.core.request import GenerationRequest, Tool
from smg.parsing.base import ParserFactory, Start
from smg.parsing.chain import Chain
from smg.parsing.declared.formats import Declared, declared
from smg.parsing.detect import TokenId, detect, thinks, tokens_of
from smg.parsing.format import DECLARED, Format
from smg.parsing.markers import UNSEALED, Seals
from smg.parsing.table import REASONING, TOOLS

logger = logging.getLogger(__name__)


class Parsers(msgspec.Struct, frozen=True):
    """The formats of one model, the operator's policy for unknown tools, and the markers that are tokens of its
    vocabulary, which count only as such."""

    reasoning: Format
    tools: Format
    unknown_tools: str | None = None
    seals: Seals = UNSEALED

    def markers(self) -> frozenset[str]:
        """The markers of both formats, also those that count only where tools are offered."""
        start = Start(tools=(Tool("any"),))
        factories = (self.reasoning.factory, self.reasoning.together, self.tools.factory)
        return frozenset(marker for make in factories if make is not None for marker in make(start).markers)

    def chain(
        self,
        request: GenerationRequest,
        choice: int,
        start: Start,
        *,
        with_ids: bool = False,
        forced: ParserFactory | None = None,
    ) -> Chain:
        """Make the parsers of one choice of ``request``; ``forced`` replaces the parser of calls.

        Reasoning stays in the text when the client does not want it apart; calls are parsed when tools are offered and
        not forbidden (case OA-09).
        """
        callable_ = bool(request.tools) and request.tool_choice.mode != "none"
        reasoning = self.reasoning.factory if request.separate_reasoning else self.reasoning.together
        tools = (forced or self.tools.factory) if callable_ else None
        start = msgspec.structs.replace(
            start,
            parallel=request.tool_choice.parallel,
            unknown_tools=self.unknown_tools,
            tools=start.tools if callable_ else (),
        )
        return Chain(
            choice,
            start,
            None if reasoning is None else reasoning(start),
            None if tools is None else tools(start),
            with_ids=with_ids,
            mint=self.tools.mint,
            earlier=sum(len(message.tool_calls) for message in request.messages),
        )


def choose(
    settings: ModelSettings,
    model: str,
    template: str | None = None,
    token_id: TokenId = lambda text: None,
    added: Collection[str] = (),
    response_template: Any = None,
) -> Parsers:
    """Choose the formats of ``model``, whose chat template is ``template`` and whose vocabulary answers ``token_id``
    and has the ``added`` tokens; ``response_template`` is what its tokenizer's configuration has of that name.

    Raises:
        SettingsError: the settings name a parser that does not exist.
    """
    tokens = tokens_of(token_id)
    parsers = _choose(settings, model, template or "", tokens)
    own = declared(response_template, model)
    nothing_known = not any((*named(settings), *detect(template or "", tokens)))
    parsers = _with_declared(parsers, own, model, unasked=nothing_known)
    uses_own = own is not None and (own.reasoning is parsers.reasoning or own.tools is parsers.tools)
    if settings.marker_match == "text" or not added or (own is not None and uses_own and not own.sealable):
        return parsers
    return msgspec.structs.replace(parsers, seals=Seals(parsers.markers().intersection(added)))


def _with_declared(parsers: Parsers, own: Declared | None, model: str, *, unasked: bool) -> Parsers:
    """``parsers`` with what the checkpoint declares, where the settings want that (``unasked``: everywhere)."""
    wanted = [format_.name == DECLARED for format_ in (parsers.reasoning, parsers.tools)]
    if own is None:
        if any(wanted):
            logger.warning("%s has no response template that can be used: its output is not parsed by one", model)
        return parsers
    reasoning = own.reasoning if unasked or wanted[0] else parsers.reasoning
    return msgspec.structs.replace(
        parsers, reasoning=reasoning, tools=own.tools if unasked or wanted[1] else parsers.tools
    )


@lru_cache(maxsize=256)
def _choose(settings: ModelSettings, model: str, template: str, tokens: frozenset[str]) -> Parsers:
    reasoning, tools = named(settings)
    found = detect(template, tokens)
    reasoning = reasoning or _by_name(REASONING, found[0]) or _by_first(REASONING, model)
    if reasoning is REASONING[-1] and settings.reasoning_parser is None and thinks(template):
        reasoning = _by_name(REASONING, "qwen3") or reasoning
    tools = tools or _by_name(TOOLS, found[1]) or _by_longest(TOOLS, model)
    return Parsers(reasoning, tools, settings.unknown_tool_policy)


def named(settings: ModelSettings) -> tuple[Format | None, Format | None]:
    """The reasoning and the tool format that the settings name. To be called at start, so that a mistake shows then.

    Raises:
        SettingsError: a name that does not exist; the message lists those that do.
    """
    problems: list[str] = []
    reasoning = _checked(REASONING, settings.reasoning_parser, "--reasoning-parser", problems)
    tools = _checked(TOOLS, settings.tool_call_parser, "--tool-call-parser", problems)
    if problems:
        raise SettingsError(problems)
    return reasoning, tools


def check_names(settings: Settings) -> None:
    """Do as ``named`` for all models and for each that has settings of its own. Raises SettingsError."""
    problems: list[str] = []
    for name, model in [("", settings.model), *settings.models.items()]:
        try:
            named(model)
        except SettingsError as error:
            problems += [f"models.{name}: {problem}" if name else problem for problem in error.problems]
    if problems:
        raise SettingsError(problems)


def _checked(rows: Sequence[Format], name: str | None, flag: str, problems: list[str]) -> Format | None:
    row = _by_name(rows, name)
    if row is None and name is not None:
        problems.append(f"{flag}: {name!r} is none of {', '.join(row.name for row in rows)}")
    return row


def _by_name(rows: Sequence[Format], name: str | None) -> Format | None:
    return next((row for row in rows if name == row.name or name in row.aliases), None)


def _by_first(rows: Sequence[Format], model: str) -> Format:
    lower = model.lower()
    return next((row for row in rows if any(pattern in lower for pattern in row.patterns)), rows[-1])


def _by_longest(rows: Sequence[Format], model: str) -> Format:
    lower = model.lower()
    found = [(len(pattern), row) for row in rows for pattern in row.patterns if pattern in lower]
    return max(found, key=lambda pair: pair[0])[1] if found else rows[-1]
