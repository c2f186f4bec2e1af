"""What ends a choice, shared out between the engine and the gateway (spec text-pipeline 5).

Stop strings stay here (an engine may have no tokenizer, field case TX-08), except that one which is a single token is
also sent as an id: the engine then ends by itself and needs no abort. Not with ``min_tokens``, before which engines
keep the model from its stop ids: a stop string may appear by then, it just ends nothing.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from smg.core.request import StopRules
from smg.core.stream import Decoder
from smg.text.lazy_library import LibraryNeeded


class Vocabulary(Protocol):
    """The part of a tokenizer that stops need."""

    @property
    def eos_ids(self) -> Sequence[int]: ...

    @property
    def decoder(self) -> Decoder: ...

    def token_id(self, text: str) -> int | None: ...

    def encode(self, text: str, add_special_tokens: bool = False) -> Sequence[int]: ...


class Stops(msgspec.Struct, frozen=True):
    """``end_ids`` end a row and are hidden; ``engine_ids`` are sent to the engine; ``eos`` is the model's own end.

    ``strings`` maps the ids of single-token stop strings back to what the client sent.
    """

    end_ids: frozenset[int]
    engine_ids: tuple[int, ...]
    eos: frozenset[int]
    strings: dict[int, str]

    def matched(self, stop: int | str | None) -> int | str | None:
        """What the client is told for ``stop``, as a row or an engine reported it."""
        if not isinstance(stop, int):
            return stop
        if stop in self.strings:
            return self.strings[stop]
        return None if stop in self.eos else stop


def share_out(rules: StopRules, engine_eos: Iterable[int], vocabulary: Vocabulary, min_tokens: int = 0) -> Stops:
    """Decide who watches for what. ``engine_eos`` are the ids the engine is known to end on by itself."""
    if not rules.strings and not rules.ids:
        return _by_eos(tuple(engine_eos), tuple(vocabulary.eos_ids), rules.ignore_eos)
    known = frozenset(engine_eos)
    eos = frozenset() if rules.ignore_eos else known | frozenset(vocabulary.eos_ids)
    strings: dict[int, str] = {}
    special: set[int] = set()
    for text in rules.strings:
        token = _single_token(text, vocabulary)
        if token is None or token in eos:
            continue
        if vocabulary.decoder.is_special(token):
            # Its text may never appear in the output, so the row has to know the id.
            special.add(token)
        elif min_tokens:
            continue
        strings[token] = text
    own = frozenset(rules.ids)
    return Stops(
        end_ids=eos | own | special,
        engine_ids=tuple(sorted(own | (eos - known) | strings.keys())),
        eos=eos - own,
        strings={token: text for token, text in strings.items() if token not in own},
    )


@lru_cache(maxsize=256)
def _by_eos(engine: tuple[int, ...], model: tuple[int, ...], ignore: bool) -> Stops:
    """As ``share_out`` for a request that has no stops of its own, as most; a model's are the same each time."""
    eos = frozenset() if ignore else frozenset(engine) | frozenset(model)
    return Stops(end_ids=eos, engine_ids=tuple(sorted(eos - frozenset(engine))), eos=eos, strings={})


def _single_token(text: str, vocabulary: Vocabulary) -> int | None:
    """The token that is exactly ``text``, if there is one.

    A vocabulary spells tokens in its own way: "Ġ" names the token of a space, and the letter has another one. So the
    text is encoded where its own spelling leads nowhere, and either way the token's bytes have to be those of the text.
    """
    token = vocabulary.token_id(text)
    if token is not None and vocabulary.decoder.token_bytes(token) == text.encode():
        return token
    try:
        ids = vocabulary.encode(text)
    except LibraryNeeded:
        # Nobody waits for that here: the gateway looks for the text itself.
        return None
    return ids[0] if len(ids) == 1 and vocabulary.decoder.token_bytes(ids[0]) == text.encode() else None
