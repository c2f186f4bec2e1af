"""Which form of ``content`` a chat template takes: a string, a list of parts, or both (spec text-pipeline 2.4).

The template's syntax tree says whether it looks into parts at all. Where it does, each role is tried with both forms:
a template may iterate the parts of users and print a tool result as it is, which for a list would be Python's
notation of it (case CT-03).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jinja2
import msgspec
from jinja2 import nodes

from smg.text import probes
from smg.text.template import ENVIRONMENT, Template

ROLES = ("system", "user", "assistant", "tool")

# Filters that hand on the items of a list of parts.
_ITEM_FILTERS = frozenset({"list", "selectattr", "rejectattr", "select", "reject"})


class ContentFormat(msgspec.Struct, frozen=True):
    """Roles whose content may be a list of parts, and roles whose content may be a string."""

    parts: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset(ROLES)


# What an operator may say instead.
FORCED = {"string": ContentFormat(), "openai": ContentFormat(frozenset(ROLES), frozenset())}


def detect(template: Template, special: Mapping[str, str]) -> ContentFormat:
    """Find out what ``template`` takes; ``special`` are its special-token variables."""
    if not reads_parts(template.source):
        return ContentFormat()
    takes_parts = frozenset(role for role in ROLES if _shows(template, special, role, _part()))
    takes_strings = frozenset(role for role in ROLES if _shows(template, special, role, probes.WORD))
    # A role that shows neither form was not asked the right way; a string is the safer guess.
    return ContentFormat(takes_parts, takes_strings | (frozenset(ROLES) - takes_parts))


def _part() -> list[dict[str, str]]:
    return [{"type": "text", "text": probes.WORD}]


def _shows(template: Template, special: Mapping[str, str], role: str, content: Any) -> bool:
    """Whether ``content`` of a ``role`` message appears in the prompt as text, and only as text."""
    message = {"role": role, "content": content}
    match role:
        case "user":
            messages = [message]
        case "system":
            messages = [message, probes.USER]
        case "assistant":
            messages = [probes.USER, message, probes.USER]
        case _:
            call = probes.call_message({probes.KEY: probes.VALUE})
            messages = [probes.USER, call, probes.result_message(content)]
    tools = {"tools": probes.TOOLS} if role == "tool" else {}
    prompt = probes.ask(template, special, messages, **tools)
    if prompt is None and role == "tool":
        # Templates that want the arguments as text fail on an object.
        messages[1] = probes.call_message("{}")
        prompt = probes.ask(template, special, messages, **tools)
    if prompt is None or probes.WORD not in prompt:
        return False
    # A part that was printed whole, as Python's or JSON's notation of it.
    return re.search(rf"""['"]text['"]: ?['"]{probes.WORD}""", prompt) is None


def reads_parts(source: str) -> bool:
    """Whether a template's syntax tree looks into ``content`` as a list (verdict ``openai`` of the spec's table)."""
    try:
        tree = ENVIRONMENT.parse(source)
    except jinja2.TemplateSyntaxError:
        return False
    messages = _message_variables(tree)
    if any(_is_content(_unfiltered(loop.iter), messages) for loop in tree.find_all(nodes.For)):
        return True
    for item in tree.find_all(nodes.Getitem):
        if isinstance(item.arg, nodes.Const) and type(item.arg.value) is int and _is_content(item.node, messages):
            return True
    for applied in tree.find_all(nodes.Filter):
        if applied.name in ("length", "count") and applied.node is not None and _is_content(applied.node, messages):
            return True
    return any(_macro_tells_forms(macro) for macro in tree.find_all(nodes.Macro))


def _message_variables(tree: nodes.Template) -> frozenset[str]:
    """Loop variables over ``messages``, or over what was set from it."""
    lists = {"messages"}
    for setting in tree.find_all(nodes.Assign):
        if isinstance(setting.target, nodes.Name) and lists & set(_names(setting.node)):
            lists.add(setting.target.name)
    found = set()
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name) and lists & set(_names(loop.iter)):
            found.add(loop.target.name)
    return frozenset(found)


def _names(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, nodes.Name):
        yield node.name
    yield from (name.name for name in node.find_all(nodes.Name))


def _unfiltered(node: nodes.Node) -> nodes.Node:
    while isinstance(node, nodes.Filter) and node.name in _ITEM_FILTERS and node.node is not None:
        node = node.node
    return node


def _is_content(node: nodes.Node, messages: frozenset[str]) -> bool:
    match node:
        case nodes.Name(name="content"):
            return True
        case nodes.Getattr(attr="content", node=nodes.Name(name=name)):
            return name in messages
        case nodes.Getitem(arg=nodes.Const(value="content"), node=nodes.Name(name=name)):
            return name in messages
        case _:
            return False


def _macro_tells_forms(macro: nodes.Macro) -> bool:
    """A macro that tests its argument's type and has a loop: the usual shape of a content renderer."""
    tests = any(isinstance(branch.test, nodes.Test) for branch in macro.find_all(nodes.If))
    return tests and next(macro.find_all(nodes.For), None) is not None
