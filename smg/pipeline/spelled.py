"""Tells operators of models that write their markers as ordinary text, where only tokens count (spec parsers 3).

Whether such text is a quotation or a fine-tune's way of calling tools cannot be told from one answer, and guessing
would turn quotations into calls. So nothing is guessed: the answers are counted, and the first of each marker is logged
with what can be set.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

logger = logging.getLogger(__name__)

# Told of a marker whose text came without its token.
Seen: TypeAlias = Callable[[str], None]


class Spelled:
    """Looks at what an engine has written in one choice: ``tokens`` are the markers that count only as tokens, and
    their ids; ``seen`` is told of those that came as text only."""

    def __init__(self, tokens: Mapping[str, int], seen: Seen) -> None:
        self._tokens = tokens
        self._seen = seen

    def look(self, text: str, ids: Sequence[int]) -> None:
        """``text`` is what ``ids`` spell."""
        for marker, token in self._tokens.items():
            if marker in text and token not in ids:
                self._seen(marker)


@cache
def warn(model: str, marker: str) -> None:
    """Log once in a process that ``model`` has spelled ``marker``."""
    logger.warning(
        "%s wrote %r in an answer without the token of that name, so it counted as text; if this is no quotation but "
        "how the model marks reasoning or calls, set --marker-match text (models.%s.marker_match for this model alone)",
        model,
        marker,
        model,
    )
