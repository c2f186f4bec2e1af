"""The one table of reasoning and tool-call formats, and which model uses which (spec parsers 2).

Adding a format is a file in ``reasoning/`` or ``tools/`` and a row here. A row's patterns are parts of model names, in
lower case; rows are tried in order.
"""

from collections.abc import Sequence

import msgspec

from smg.config.load import SettingsError
from smg.config.settings import ModelSettings
from smg.core.request import GenerationRequest
from smg.parsing.base import ParserFactory, Start
from smg.parsing.chain import Chain
from smg.parsing.reasoning.delimiters import OPENER, Delimiters, factory, head_of, name_head

PASSTHROUGH = "passthrough"


class Format(msgspec.Struct, frozen=True):
    """A row: ``factory`` None means that nothing is parsed."""

    name: str
    factory: ParserFactory | None
    patterns: tuple[str, ...] = ()


_JSON_CALL = head_of("{", "<function=")
_KIMI_CALL = "<|tool_calls_section_begin|>"

REASONING: tuple[Format, ...] = (
    Format("deepseek_r1", factory(Delimiters(start="inside")), ("deepseek-r1", "qwq")),
    Format(
        "deepseek_v31",
        factory(Delimiters(tools=("<｜tool▁calls▁begin｜>",))),
        ("deepseek-v3.1", "deepseek-v3-1", "deepseek-v3.2", "deepseek-v4"),
    ),
    Format(
        "qwen3_thinking",
        factory(Delimiters(start="inside", tools=("<tool_call>",), head=_JSON_CALL)),
        ("qwen3-thinking", "qwen-thinking"),
    ),
    Format("qwen3", factory(Delimiters(tools=("<tool_call>",), head=_JSON_CALL)), ("qwen3",)),
    Format(
        "glm45",
        factory(Delimiters(tools=("<tool_call>",), head=name_head)),
        ("glm45", "glm47", "glm-4.5", "glm-4.6", "glm-4.7", "glm-5"),
    ),
    Format("kimi_thinking", factory(Delimiters(start="inside", tools=(_KIMI_CALL,))), ("kimi-k2-thinking",)),
    Format("kimi_k25", factory(Delimiters(tools=(_KIMI_CALL,))), ("kimi-k2.5",)),
    Format("kimi", factory(Delimiters(("◁think▷",), ("◁/think▷",))), ("kimi",)),
    Format("step3", factory(Delimiters(start="inside", tools=("<｜tool_calls_begin｜>",))), ("step3",)),
    Format("minimax", factory(Delimiters(start="inside", tools=("<minimax:tool_call>",))), ("minimax", "mm-m2")),
    Format(
        "nano_v3",
        factory(Delimiters(tools=("<tool_call>",), head=_JSON_CALL)),
        ("nemotron-nano", "nemotron-super", "nano-v3"),
    ),
    Format("base", factory(Delimiters())),
    Format(PASSTHROUGH, None),
)

TOOLS: tuple[Format, ...] = (Format(PASSTHROUGH, None),)


class Parsers(msgspec.Struct, frozen=True):
    """The formats of one model."""

    reasoning: Format
    tools: Format

    def chain(self, request: GenerationRequest, choice: int, start: Start, *, with_ids: bool = False) -> Chain:
        """Make the parsers of one choice of ``request``.

        Reasoning stays in the text when the client does not want it apart; calls are parsed when tools are offered and
        not forbidden.
        """
        reasoning = self.reasoning.factory if request.separate_reasoning else None
        tools = self.tools.factory if request.tools and request.tool_choice.mode != "none" else None
        return Chain(
            choice,
            start,
            None if reasoning is None else reasoning(start),
            None if tools is None else tools(start),
            with_ids=with_ids,
        )


def choose(settings: ModelSettings, model: str, template: str | None = None) -> Parsers:
    """Choose the formats of ``model``: by name in the settings, by the model's name, by its chat template.

    Raises:
        SettingsError: the settings name a parser that does not exist.
    """
    reasoning, tools = named(settings)
    return Parsers(reasoning or _reasoning_of(model, template), tools or _by_pattern(TOOLS, model))


def named(settings: ModelSettings) -> tuple[Format | None, Format | None]:
    """The reasoning and the tool format that the settings name. To be called at start, so that a mistake shows then.

    Raises:
        SettingsError: a name that does not exist; the message lists those that do.
    """
    problems: list[str] = []
    reasoning = _by_name(REASONING, settings.reasoning_parser, "--reasoning-parser", problems)
    tools = _by_name(TOOLS, settings.tool_call_parser, "--tool-call-parser", problems)
    if problems:
        raise SettingsError(problems)
    return reasoning, tools


def _by_name(rows: Sequence[Format], name: str | None, flag: str, problems: list[str]) -> Format | None:
    if name is None:
        return None
    for row in rows:
        if row.name == name:
            return row
    problems.append(f"{flag}: {name!r} is none of {', '.join(row.name for row in rows)}")
    return None


def _by_pattern(rows: Sequence[Format], model: str) -> Format:
    lower = model.lower()
    for row in rows:
        if any(pattern in lower for pattern in row.patterns):
            return row
    return rows[-1]


def _reasoning_of(model: str, template: str | None) -> Format:
    """By name; a template that writes reasoning blocks tells on a model whose name says nothing."""
    row = _by_pattern(REASONING, model)
    if row.factory is None and template is not None and OPENER in template:
        return next(row for row in REASONING if row.name == "base")
    return row
