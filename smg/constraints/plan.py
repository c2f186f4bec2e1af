"""What an answer has to look like, for each combination of output constraint, tools and reasoning (cases SO-02, SO-03).

The table is in docs/structured-output.md; the functions below are its rows.
"""

from collections.abc import Sequence

import msgspec

from smg.constraints import custom, formats, objects
from smg.constraints import schema as schemas
from smg.constraints.abilities import Abilities
from smg.constraints.calls import Has, Shape, shape
from smg.constraints.lead import Lead, lead
from smg.constraints.verify import Rules, rules
from smg.constraints.walk import Schema
from smg.core.errors import GatewayError
from smg.core.request import INPUT, Constraint, GenerationRequest, Tool, ToolGrammar
from smg.parsing.base import ParserFactory, Start
from smg.parsing.choose import Parsers
from smg.parsing.forced import Forced

# Constraints that concern the answer's text, which a forced call has none of.
_OF_TEXT = frozenset({"json_schema", "json_object"})


class Output(msgspec.Struct, frozen=True):
    """What engines and parsers are told.

    ``constraint`` applies to the whole output when ``from_first_token``, else where the engine's own rules say (behind
    the reasoning, when ``require_reasoning``). ``tools`` replaces the parser of calls. ``ignored`` is what could not be
    honoured: the kind of a constraint, and paths of custom tools' grammars. ``rules`` are what the answer is held
    against in the end.
    """

    constraint: Constraint | None = None
    from_first_token: bool = False
    require_reasoning: bool = False
    tools: ParserFactory | None = None
    ignored: tuple[str, ...] = ()
    rules: Rules = Rules()


def plan(request: GenerationRequest, parsers: Parsers, start: Start, able: Abilities, has: Has) -> Output:
    """Decide for ``request``, whose prompt ended as ``start`` says.

    ``has`` tells whether a text is a token of the vocabulary.

    Raises:
        GatewayError: 400: the wishes contradict each other, a tool's schema is bad, or no engine can do it.
    """
    thinks = start.thinking is True
    wish, choice = request.constraint, request.tool_choice
    tools = offered(request)
    first = lead(parsers.reasoning, start) if request.messages else None
    answer: Constraint | None = wish if first is None or wish is None else _headed(wish, first, able)
    parser: ParserFactory | None = None
    ignored: tuple[str, ...] = ()
    if tools:
        form = _shape(tools, parsers, start, able, has)
        if choice.mode == "required":
            answer, parser = _forced(request, tools, parsers, able, form)
        else:
            answer = _free(request, tools, parsers, form, answer)
        if answer is None or (form is None and answer.kind != "grammar"):
            ignored = _unbound(request, tools, parsers)
    held = _rules(wish, choice.mode, tools, enforced=answer is not None)
    if answer is None:
        if wish is not None:
            ignored = (wish.kind, *ignored)
        return Output(require_reasoning=thinks, ignored=ignored, rules=held)
    if first is not None and not request.separate_reasoning:
        # The reasoning stays in the text, so the text is no answer by itself.
        held = msgspec.structs.replace(held, text="")
    return msgspec.structs.replace(_behind(answer, parser, first, thinks, able), ignored=ignored, rules=held)


def offered(request: GenerationRequest) -> list[Tool]:
    """The tools that may be called."""
    choice = request.tool_choice
    if choice.mode == "none":
        return []
    return [tool for tool in request.tools if not choice.names or tool.name in choice.names]


def _headed(wish: Constraint, first: Lead, able: Abilities) -> Constraint:
    """``wish`` with what opens an answer in the model's own format."""
    text = formats.piece_of(wish) if first.text and able.tags else None
    return wish if text is None else formats.constraint(first.headed(text))


def _forced(
    request: GenerationRequest, tools: Sequence[Tool], parsers: Parsers, able: Abilities, found: Shape | None
) -> tuple[Constraint, ParserFactory]:
    """A call must come: in the model's own form where it is known, else as plain JSON."""
    wish = request.constraint
    if wish is not None and wish.kind not in _OF_TEXT:
        raise GatewayError(
            "invalid_tool_configuration",
            "a forced tool choice leaves no room for another constraint on the output",
            param="tool_choice",
        )
    arguments = {tool.name: _arguments(request, tool) for tool in tools}
    named = tools[0] if len(tools) == 1 else None
    parser = Forced(named, parsers.tools.factory)
    once = not request.tool_choice.parallel
    if found is not None:
        piece = found.piece(arguments, forced=True, once=once or named is not None, inputs=_inputs(tools))
        return formats.constraint(piece), parser
    if named is not None and named.grammar is not None and named.grammar.syntax == "lark" and able.grammars:
        return custom.whole(named.grammar), parser
    if not able.schemas:
        raise GatewayError(
            "unsupported_parameter", "no engine of this model can be made to call a tool", param="tool_choice"
        )
    if named is not None:
        return objects.one(arguments[named.name]), parser
    return objects.several(arguments, once=once), parser


def _free(
    request: GenerationRequest, tools: Sequence[Tool], parsers: Parsers, found: Shape | None, wish: Constraint | None
) -> Constraint | None:
    """Calls may come. A constraint on the text must not forbid them, and strict tools bind their own calls only."""
    once = not request.tool_choice.parallel
    if wish is None:
        if found is None or not found.free or not any(tool.strict or tool.grammar for tool in tools):
            return None
        arguments = {
            tool.name: _arguments(request, tool) if tool.strict or tool.kind == "custom" else _ANYTHING
            for tool in tools
        }
        return formats.constraint(found.piece(arguments, forced=False, once=once, inputs=_inputs(tools)))
    if parsers.tools.factory is None and found is None:
        # Nothing that this model writes is read as a call.
        return wish
    text = formats.piece_of(wish)
    if found is None or text is None:
        return None
    arguments = {tool.name: _arguments(request, tool) for tool in tools}
    calls = found.piece(arguments, forced=True, once=once, inputs=_inputs(tools))
    return formats.constraint(formats.either(text, calls))


_ANYTHING: Schema = {"type": "object"}


def _behind(
    answer: Constraint, parser: ParserFactory | None, first: Lead | None, thinks: bool, able: Abilities
) -> Output:
    """``answer``, and reasoning before it where the model will reason (case SO-02)."""
    if first is None:
        return Output(answer, require_reasoning=thinks, tools=parser)
    if able.waits and not first.ours:
        return Output(answer, require_reasoning=True, tools=parser)
    piece = formats.piece_of(answer)
    if piece is None or not able.tags:
        return Output(answer, require_reasoning=thinks, tools=parser)
    return Output(formats.constraint(first.before(piece)), from_first_token=True, tools=parser)


def _rules(wish: Constraint | None, mode: str, tools: Sequence[Tool], *, enforced: bool) -> Rules:
    """What the answer is held against: a forced call has to be there and leaves no text, and of tools only what is
    promised."""
    forced = tuple(tool.name for tool in tools) if mode == "required" else ()
    text = "" if wish is None or forced else rules(wish.kind, wish.value)
    bound = {
        tool.name: msgspec.json.encode(tool.parameters or {}).decode()
        for tool in tools
        if tool.kind != "custom" and (tool.strict or forced)
    }
    return Rules(text, bound, enforced, forced) if text or bound or forced else Rules()


def _inputs(tools: Sequence[Tool]) -> dict[str, ToolGrammar]:
    """The grammars of custom tools."""
    return {tool.name: tool.grammar for tool in tools if tool.grammar is not None}


def _shape(tools: Sequence[Tool], parsers: Parsers, start: Start, able: Abilities, has: Has) -> Shape | None:
    found = shape(parsers.tools.name, has) if able.tags else None
    if found is None or not found.fits([tool.name for tool in tools]):
        return None
    return found.behind(start.prompt_tail)


def _arguments(request: GenerationRequest, tool: Tool) -> Schema:
    """The schema of a tool's arguments, closed: what a model may write must end.

    Raises:
        GatewayError: it is no schema, or one that never ends (case SO-01).
    """
    given = _input(tool) if tool.kind == "custom" else tool.schema
    schemas.check(given, _path(request, tool))
    closed = schemas.strict({"type": "object", **given})
    if closed.get("properties", {}) == {} and not given.get("patternProperties"):
        closed.setdefault("additionalProperties", False)
    return closed


def _input(tool: Tool) -> Schema:
    """A custom tool's arguments as a schema. What only a grammar could say is not in it."""
    text: Schema = {"type": "string"}
    if tool.grammar is not None and tool.grammar.syntax == "regex":
        text["pattern"] = f"^(?:{tool.grammar.definition})$"
    return {**tool.schema, "properties": {INPUT: text}}


def _unbound(request: GenerationRequest, tools: Sequence[Tool], parsers: Parsers) -> tuple[str, ...]:
    """Paths of grammars that bind no call, where calls are not written in the model's own form.

    A forced call is bound by a schema then, which has a place for a regular expression. A model whose output is not
    read as calls makes none.
    """
    forced = request.tool_choice.mode == "required"
    if not forced and parsers.tools.factory is None:
        return ()
    loose = [tool for tool in tools if tool.grammar is not None and not (forced and tool.grammar.syntax == "regex")]
    return tuple(f"tools[{request.tools.index(tool)}].custom.format" for tool in loose)


def _path(request: GenerationRequest, tool: Tool) -> str:
    """Where the body has the schema, in the words of the dialect."""
    index = next(number for number, each in enumerate(request.tools) if each is tool)
    match tool.raw:
        case {"function": _}:
            return f"tools[{index}].function.parameters"
        case {"input_schema": _}:
            return f"tools[{index}].input_schema"
    return f"tools[{index}].parameters" if tool.raw else f"functions[{index}].parameters"
