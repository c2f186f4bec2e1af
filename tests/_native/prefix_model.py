"""What the prefix index promises, with dictionaries."""

from smg._native.prefix_keys import PrefixKeys

DEEPEST = 65535


class Model:
    """Holders by prefix, in both planes. ``floor`` is the index's own decision what to evict."""

    def __init__(self) -> None:
        self.approximate: dict[int, set[str]] = {}
        self.exact: dict[int, set[str]] = {}
        self.used: dict[int, tuple[int, int]] = {}  # key: (tick, -depth)

    def insert(self, keys: PrefixKeys, worker: str, tick: int) -> None:
        for depth, key in enumerate(keys.tolist()):
            self.approximate.setdefault(key, set()).add(worker)
            self.used[key] = (tick, DEEPEST - depth)

    def evict(self, floor: float) -> None:
        for key, (tick, height) in list(self.used.items()):
            if tick + height / (DEEPEST + 1) < floor:
                del self.used[key]
                del self.approximate[key]

    def forget(self, worker: str, plane: int | None = None) -> None:
        for number, table in enumerate((self.approximate, self.exact)):
            if plane in (None, number):
                for holders in table.values():
                    holders.discard(worker)

    def depth(self, keys: PrefixKeys, worker: str, plane: int) -> int:
        table = (self.approximate, self.exact)[plane]
        for depth, key in enumerate(keys.tolist()):
            if worker not in table.get(key, ()):
                return depth
        return keys.count
