"""RadixIndex: the prefix index as an exact tree in plain Python, for one process (spec routing 2.1, 2.2).

It answers to the character or token, where the shared index answers to the block. Parity tests and simulations use it
to tell what coarser blocks and hashing give away.
"""

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

Unit = TypeVar("Unit", bound=Hashable)


class _Node(Generic[Unit]):
    """An edge and what hangs below it. ``used`` is each holder's last tick here."""

    __slots__ = ("children", "edge", "used")

    def __init__(self, edge: Sequence[Unit]) -> None:
        self.edge = edge
        self.children: dict[Unit, _Node[Unit]] = {}
        self.used: dict[str, int] = {}


class RadixIndex(Generic[Unit]):
    """Which worker holds which beginning of a text or of a list of token ids."""

    def __init__(self) -> None:
        self._root: _Node[Unit] = _Node(())
        self._tick = 0

    def insert(self, prompt: Sequence[Unit], worker: str) -> None:
        """``worker`` holds ``prompt``; all of it counts as used now."""
        self._tick += 1
        node, at = self._root, 0
        while at < len(prompt):
            child = node.children.get(prompt[at])
            if child is None:
                child = node.children[prompt[at]] = _Node(prompt[at:])
            shared = _shared(child.edge, prompt, at)
            if shared < len(child.edge):
                _split(child, shared)
            child.used[worker] = self._tick
            node, at = child, at + shared

    def match(self, prompt: Sequence[Unit]) -> dict[str, int]:
        """Units each worker holds from the beginning; workers that hold nothing are left out."""
        out: dict[str, int] = {}
        node, at = self._root, 0
        while at < len(prompt) and (child := node.children.get(prompt[at])) is not None:
            shared = _shared(child.edge, prompt, at)
            for worker in child.used:
                if node is self._root or worker in node.used:
                    out[worker] = at + shared
            if shared < len(child.edge):
                break
            node, at = child, at + shared
        return out

    def remove(self, worker: str) -> None:
        """Forget all ``worker`` holds."""
        _prune(self._root, worker, self._tick + 1)

    def size(self, worker: str) -> int:
        """Units stored for ``worker``, each once however often it was inserted."""
        return sum(len(node.edge) for node in _below(self._root) if worker in node.used)

    def evict(self, worker: str, limit: int) -> None:
        """Let go of what ``worker`` used least recently, leaves before their ancestors, down to ``limit`` units."""
        size = self.size(worker)
        for tick in sorted({node.used[worker] for node in _below(self._root) if worker in node.used}):
            if size <= limit:
                return
            _prune(self._root, worker, tick + 1)
            size = self.size(worker)


def _shared(edge: Sequence[Unit], prompt: Sequence[Unit], start: int) -> int:
    """Number of leading units of ``edge`` that ``prompt`` has from ``start`` on."""
    count = min(len(edge), len(prompt) - start)
    if edge[:count] == prompt[start : start + count]:
        return count
    return next(at for at in range(count) if edge[at] != prompt[start + at])


def _split(node: _Node[Unit], at: int) -> None:
    """Cut a node's edge in two; who holds the whole holds both parts."""
    tail: _Node[Unit] = _Node(node.edge[at:])
    tail.children, tail.used = node.children, dict(node.used)
    node.edge = node.edge[:at]
    node.children = {tail.edge[0]: tail}


def _below(node: _Node[Unit]) -> list[_Node[Unit]]:
    found, todo = [], list(node.children.values())
    while todo:
        found.append(todo.pop())
        todo.extend(found[-1].children.values())
    return found


def _prune(root: _Node[Unit], worker: str, before: int) -> None:
    """Take ``worker`` off all nodes it has not used since ``before``, and drop nodes that nobody holds."""
    for node in [*_below(root)[::-1], root]:
        if node.used.get(worker, before) < before:
            del node.used[worker]
        node.children = {unit: child for unit, child in node.children.items() if child.used}
