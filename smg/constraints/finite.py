"""Whether a schema can end: some schemas refer to themselves in a way that no finite value satisfies (case SO-01)."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from smg.constraints.walk import resolve

Node: TypeAlias = Any  # a schema: an object or a boolean

_CHOICES = ("anyOf", "oneOf")


def regress(root: Mapping[str, Any]) -> str | None:
    """The reference of a schema that leads back to itself before it says anything; None when there is none.

    Only keywords that apply to the very same value count (references, ``allOf`` and kin): a list whose items are lists
    is fine.
    """
    done: set[int] = set()
    for start in _nodes(root):
        if id(start) in done:
            continue
        # Depth first with the way back on the stack, instead of recursion.
        open_: dict[int, None] = {id(start): None}
        stack = [(start, _in_place(root, start))]
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                open_.pop(id(node), None)
                done.add(id(node))
                continue
            name, target = following
            if id(target) in open_:
                return name
            if id(target) not in done:
                open_[id(target)] = None
                stack.append((target, _in_place(root, target)))
    return None


def endless(root: Mapping[str, Any]) -> bool:
    """Whether no finite value satisfies ``root``. Values that a schema forbids by ``false`` count too."""
    nodes = {id(node): node for node in _nodes(root)}
    needed_by: dict[int, list[int]] = {}
    for key, node in nodes.items():
        for part in _parts(root, node):
            needed_by.setdefault(id(part), []).append(key)
    # What ends is found from the leaves up: a schema is looked at again when one that it needs was found to end.
    ends: set[int] = set()
    candidates = set(nodes)
    while candidates:
        found = {key for key in candidates if _ends(root, nodes[key], ends)}
        ends |= found
        candidates = {user for key in found for user in needed_by.get(key, ()) if user not in ends}
    return id(root) not in ends


def _parts(root: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Node]:
    """The schemas that ``_ends`` asks about for ``node``."""
    target = node.get("$ref")
    if isinstance(target, str):
        yield resolve(root, target)
    for key in ("allOf", *_CHOICES, "prefixItems"):
        yield from _list(node, key)
    properties = node.get("properties")
    if isinstance(properties, dict):
        yield from properties.values()
    yield node.get("items")


def _ends(root: Mapping[str, Any], node: Mapping[str, Any], known: set[int]) -> bool:
    def ends(value: Node) -> bool:
        return value is not False and (not isinstance(value, dict) or id(value) in known)

    target = node.get("$ref")
    if isinstance(target, str) and not ends(resolve(root, target)):
        return False
    if not all(map(ends, _list(node, "allOf"))):
        return False
    if not all(any(map(ends, _list(node, key))) for key in _CHOICES if _list(node, key)):
        return False
    types = node.get("type")
    kinds = [types] if isinstance(types, str) else types if isinstance(types, list) else None
    if kinds is not None:
        return any(_kind_ends(node, kind, ends) for kind in kinds)
    # Without a type, required properties and items bind only values of their kind: any other value ends.
    return True


def _kind_ends(node: Mapping[str, Any], kind: Any, ends: Any) -> bool:
    if kind == "object":
        properties, required = node.get("properties"), node.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list):
            return True
        return all(ends(properties.get(name, True)) for name in required if isinstance(name, str))
    if kind == "array":
        least = node.get("minItems", 0)
        first = _list(node, "prefixItems")
        items = node.get("items", True)
        if not isinstance(least, int | float):
            return True
        return all(map(ends, first[: int(least)])) and (least <= len(first) or isinstance(items, list) or ends(items))
    return True


def _in_place(root: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schemas that ``node`` holds the same value against, each with a name for messages."""
    reference = node.get("$ref")
    if isinstance(reference, str) and isinstance(target := resolve(root, reference), dict):
        yield f"'{reference}'", target
    for key in ("allOf", *_CHOICES):
        for item in _list(node, key):
            if isinstance(item, dict):
                yield f"'{key}'", item
    for key in ("not", "if", "then", "else"):
        if isinstance(item := node.get(key), dict):
            yield f"'{key}'", item


def _nodes(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All objects inside ``root``: more than its schemas, which costs nothing here."""
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _list(node: Mapping[str, Any], key: str) -> list[Any]:
    value = node.get(key)
    return value if isinstance(value, list) else []
