"""Chat templates: one sandboxed Jinja environment with what published templates use (spec text-pipeline 2.2).

Rendering is pure Python and holds the GIL. A compiled template is kept per source text, its output is bounded in size
and its rendering in time, and whatever goes wrong inside a template is the request's error, never a traceback.
"""

import datetime
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

from smg.core import clock
from smg.core.errors import GatewayError
from smg.text.shield import reveal

MAX_OUTPUT = 16 << 20  # characters
MAX_SECONDS = 10.0
# Where a context has what protects clients' texts (``Shield.protect``); no name that a template can write.
PROTECT = "shield: protect"


class TemplateFailure(Exception):
    """The template itself refused (``raise_exception``), or would have broken a limit."""


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks what a model wrote, for training; here the body passes through."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own convention

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


# What a dict has besides its items.
_DICT_NAMES = frozenset(dir(dict))


class _Environment(SandboxedEnvironment):
    """Not the immutable sandbox: templates build lists with ``append`` and ``pop``, on data made for one rendering."""

    intercepted_binops = frozenset({"*", "**"})

    def getitem(self, obj: Any, argument: Any) -> Any:
        """As Jinja's, which asks a dict for an attribute when it lacks an item, and takes long to find out."""
        if type(obj) is dict and type(argument) is str and argument not in _DICT_NAMES:
            return obj[argument] if argument in obj else self.undefined(obj=obj, name=argument)
        return super().getitem(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As Jinja's, which asks a dict for an attribute before it asks for an item."""
        if type(obj) is dict and attribute not in _DICT_NAMES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and isinstance(right, int) and right > 64:
            raise TemplateFailure("the template computes too large a power")
        for text, times in ((left, right), (right, left)):
            if isinstance(text, str | list | tuple) and isinstance(times, int) and len(text) * times > MAX_OUTPUT:
                raise TemplateFailure("the template repeats a text too often")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateFailure(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """``json.dumps`` as the training pipelines used it: no HTML escapes, key order kept."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@jinja2.pass_context
def _from_json(context: jinja2.runtime.Context, text: str) -> Any:
    """Read JSON of a client, in which escapes may hide what the shield looked for in the text."""
    value, protect = json.loads(text), context.get(PROTECT)
    return value if protect is None else protect(value)


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    environment.filters["tojson"] = _tojson
    environment.filters["from_json"] = _from_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


ENVIRONMENT = _environment()


class Template(Protocol):
    """Turns a conversation into a prompt. ``source`` is the text that says how, or names what it writes.

    ``controls`` are texts with a meaning of their own in a prompt, which clients' text must not have.
    """

    @property
    def source(self) -> str: ...

    @property
    def controls(self) -> tuple[str, ...]: ...

    def render(self, context: Mapping[str, Any]) -> str:
        """Render ``context`` (spec text-pipeline 2.3). Raises GatewayError: ``process_messages_failed``."""
        ...


class ChatTemplate:
    """A compiled template. ``source`` is its text; what it writes beside special tokens is not known."""

    controls: tuple[str, ...] = ()

    def __init__(self, source: str) -> None:
        """Compile ``source``.

        Raises:
            GatewayError: ``process_messages_failed`` when it is no valid Jinja.
        """
        self.source = source
        try:
            self._compiled = ENVIRONMENT.from_string(source)
            # Copied into each context, which takes long from the chain of mappings it is.
            self._compiled.globals = dict(self._compiled.globals)
        except (jinja2.TemplateError, RecursionError, SyntaxError) as error:
            message = f"the model's chat template cannot be compiled: {error}"
            raise GatewayError("process_messages_failed", message) from error

    def render(self, context: Mapping[str, Any]) -> str:
        """Render with ``context``, whose containers the template may change.

        Raises:
            GatewayError: ``process_messages_failed`` (400) with what the template, or Jinja, complained about.
        """
        pieces: list[str] = []
        size, end = 0, clock.monotonic() + MAX_SECONDS
        try:
            compiled = self._compiled
            # As Jinja's ``generate``, which is a generator around this one.
            for piece in compiled.root_render_func(compiled.new_context(dict(context))):
                size += len(piece)
                if size > MAX_OUTPUT:
                    raise TemplateFailure(f"the rendered prompt is longer than {MAX_OUTPUT} characters")
                if clock.monotonic() > end:
                    raise TemplateFailure(f"rendering took longer than {MAX_SECONDS:g} seconds")
                pieces.append(piece)
        except TemplateFailure as error:
            raise GatewayError("process_messages_failed", reveal(str(error))) from None
        except RecursionError:
            raise GatewayError("process_messages_failed", "the chat template recurses too deeply") from None
        except Exception as error:  # a template is a program: it can fail in any way, and that must stay a 400
            message = reveal(f"the chat template failed: {error}")
            raise GatewayError("process_messages_failed", message, detail=type(error).__name__) from error
        return "".join(pieces)


@lru_cache(maxsize=64)
def compile_template(source: str) -> ChatTemplate:
    """Compile ``source``, once for all models that share it.

    Raises:
        GatewayError: as ``ChatTemplate``.
    """
    return ChatTemplate(source)
