"""What a custom tool may be given: free text, or text of a grammar that comes with the tool."""

from functools import lru_cache

from smg.constraints import formats, lark, regular
from smg.constraints.formats import Piece
from smg.constraints.language import Language, LanguageError, ebnf
from smg.core.errors import bad_request
from smg.core.request import INPUT, Constraint, ToolGrammar

MAX_DEFINITION = 64 << 10  # characters


def check(grammar: ToolGrammar, path: str) -> None:
    """Refuse a grammar that can't be read. Raises GatewayError (400) at ``path``."""
    if len(grammar.definition) > MAX_DEFINITION:
        raise bad_request(f"the grammar is longer than {MAX_DEFINITION} characters", path)
    try:
        language(grammar)
    except LanguageError as error:
        raise bad_request(str(error), path) from None


@lru_cache(maxsize=64)
def language(grammar: ToolGrammar) -> Language:
    """What ``grammar`` describes.

    Raises:
        LanguageError: it can't be read.
    """
    if grammar.syntax == "lark":
        return lark.parse(grammar.definition)
    return Language({"start": regular.parse(grammar.definition)})


def text(grammar: ToolGrammar) -> Piece:
    """An input as it is."""
    return formats.grammar(_ebnf(grammar, False))


def json_string(grammar: ToolGrammar) -> Piece:
    """An input as it stands between the quotes of a JSON string."""
    return formats.grammar(_ebnf(grammar, True))


def json_object(grammar: ToolGrammar) -> Piece:
    """An input as the arguments of a call in JSON."""
    return formats.sequence(formats.const(f'{{"{INPUT}": "'), json_string(grammar), formats.const('"}'))


def whole(grammar: ToolGrammar) -> Constraint:
    """The whole output is the arguments of a call in JSON."""
    return Constraint("grammar", ebnf(language(grammar), json_string=True, before=f'{{"{INPUT}": "', after='"}'))


def as_ebnf(text: str) -> str:
    """A grammar for the whole output in the notation that every engine reads. Lark's is rewritten; what is in neither,
    or has parts that cannot be, stays as it is, for engines that know better."""
    if "::=" in text:
        return text
    try:
        return _ebnf(ToolGrammar("lark", text), False)
    except LanguageError:
        return text


@lru_cache(maxsize=64)
def _ebnf(grammar: ToolGrammar, json_string: bool) -> str:
    return ebnf(language(grammar), json_string=json_string)
