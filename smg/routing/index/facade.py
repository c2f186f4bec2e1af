"""Prefixes: the shared index as routing policies see it (spec routing 10.3; its events: 3)."""

from smg._native.hashes import xxh3_64
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg.routing.candidates import Candidates, Place
from smg.routing.router import Query


def salt_of(model: str, kind: str, adapter: str = "") -> int:
    """What keeps prompts of different models, adapters and kinds ("tokens", "text", …) apart in the index."""
    return xxh3_64(f"{model}\0{adapter}\0{kind}".encode())


def adapter_of(name: str) -> int:
    """The number of a LoRA adapter in the keys of token blocks; 0 is the base model."""
    return (xxh3_64(name.encode()) or 1) if name else 0


class PrefixLesson:
    """A ``Lesson``: the worker in ``slot`` holds a prompt.

    Others that come while the prompt is being computed had better wait for it there than compute it again elsewhere,
    so it is entered at once. The ticket is taken now: should the worker be gone later, its successor in the slot learns
    nothing.
    """

    def __init__(self, index: PrefixIndex, keys: PrefixKeys, slot: int) -> None:
        self._index = index
        self._keys = keys
        self._ticket = index.ticket(slot)
        self._held = index.depth(keys, (slot,))[0]

    def assume(self) -> None:
        self._index.insert(self._keys, self._ticket)

    # Entered once more: some of it may have been evicted, or withdrawn for another request.
    confirm = assume

    def withdraw(self) -> None:
        self._index.withdraw(self._keys, self._ticket, self._held)


class Prefixes:
    """Asks and teaches the index. ``block`` is the size of its own token blocks; engines that tell of their cache may
    have others.
    """

    def __init__(self, index: PrefixIndex, block: int) -> None:
        self._index = index
        self._block = block
        self._salts: dict[tuple[str, str], int] = {}

    def match(self, query: Query, candidates: Candidates) -> PrefixKeys | None:
        """Note on ``candidates.placement`` how much of the prompt each holds; returns the prompt's keys.

        Tokens if there are any, else text; None when the query has neither.
        """
        if query.ids:
            salt = self._salt(query.model, "tokens")
            adapter = adapter_of(query.adapter)
            keys = self._index.token_keys(query.ids, self._block, salt, adapter)
            other = candidates.placement.match(self._index, keys)
            seen = {0, self._block}
            while other not in seen:
                # Some engines tell of their cache in blocks of another size.
                seen.add(other)
                other = candidates.placement.match(
                    self._index, PrefixKeys.of_tokens(query.ids, other, salt, adapter), False
                )
            return keys
        if query.text:
            keys = self._index.text_keys(query.text, self._salt(query.model, f"text\0{query.adapter}"))
            candidates.placement.match(self._index, keys)
            return keys
        return None

    def lesson(self, keys: PrefixKeys, place: Place) -> "PrefixLesson":
        """That ``place`` holds the prompt."""
        return PrefixLesson(self._index, keys, place.slot)

    def _salt(self, model: str, kind: str) -> int:
        found = self._salts.get((model, kind))
        if found is None:
            found = self._salts[model, kind] = salt_of(model, kind)
        return found
