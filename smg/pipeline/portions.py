"""How much of what an engine has sent is worked off at once (field case ME-01).

An engine that is far ahead of its client brings tens of thousands of ids in one read. Their events are written in
portions, so that a client that does not read holds up one portion and not all of them, and others get their turn.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from smg.core.batch import TokenBatch

# Some 200 kB of a chat stream.
PORTION = 1024


def portion(batches: Sequence[TokenBatch], size: int = PORTION) -> tuple[list[TokenBatch], list[TokenBatch]]:
    """Return what is to be worked off now, up to ``size`` ids of it, and what later; the order stays.

    Of a batch that is cut in two, the first part has what tells of the prompt, the second one the end.
    """
    room = size
    for at, batch in enumerate(batches):
        if len(batch.ids) > room:
            now, later = _cut(batch, room) if room else (None, batch)
            return [*batches[:at], *([] if now is None else [now])], [later, *batches[at + 1 :]]
        room -= len(batch.ids)
    return list(batches), []


def _cut(batch: TokenBatch, at: int) -> tuple[TokenBatch, TokenBatch]:
    rows = batch.logprobs
    first = replace(
        batch,
        ids=batch.ids[:at],
        logprobs=None if rows is None else rows[:at],
        finish=None,
        matched_stop=None,
        kv_params=None,
    )
    rest = replace(batch, ids=batch.ids[at:], logprobs=None if rows is None else rows[at:], prompt_logprobs=None)
    return first, rest
