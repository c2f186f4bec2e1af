"""Format: a row of the table of formats."""

import msgspec

from smg.parsing import call_ids
from smg.parsing.base import ParserFactory
from smg.parsing.call_ids import Mint, Recall

PASSTHROUGH = "passthrough"
# What the checkpoint declares itself (``parsing.declared``).
DECLARED = "hf"


class Format(msgspec.Struct, frozen=True):
    """A row: ``factory`` None means that nothing is parsed.

    ``patterns`` are parts of model names, in lower case. ``aliases`` are further names that settings may use. ``mint``
    makes the ids of calls (tool formats only), ``recall`` those of earlier turns where the model reads them back (None:
    any will do). ``together`` is for formats whose one parser reads reasoning, answer and calls (a reasoning row): the
    parser for clients who do not want reasoning apart, since it is never left out.
    """

    name: str
    factory: ParserFactory | None
    patterns: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    mint: Mint = call_ids.default
    together: ParserFactory | None = None
    recall: Recall | None = None
