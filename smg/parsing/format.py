"""Format: a row of the table of formats."""

import msgspec

from smg.parsing import call_ids
from smg.parsing.base import ParserFactory
from smg.parsing.call_ids import Mint

PASSTHROUGH = "passthrough"


class Format(msgspec.Struct, frozen=True):
    """A row: ``factory`` None means that nothing is parsed.

    ``patterns`` are parts of model names, in lower case. ``aliases`` are further names that settings may use. ``mint``
    makes the ids of calls (tool formats only).
    """

    name: str
    factory: ParserFactory | None
    patterns: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    mint: Mint = call_ids.default
