"""Which data-parallel ranks a worker is routed to by (spec routing 4.6; field case RO-05).

Rank numbers are global: of an engine on several machines each has a part, and takes requests for that part only. A rank
is never part of an address: a worker has its ranks beside its URL, and a request carries the one it is for.
"""

from collections.abc import Sequence

from smg.engines.http.address import split_rank
from smg.fleet.records import WorkerRecord

# More is a mistake in a label, and would take all slots of the region.
_MOST = 1024


def ranks_of(worker: WorkerRecord, *, dp_aware: bool) -> Sequence[int]:
    """The global numbers of the ranks that requests for the worker are routed to one by one; none: the engine chooses.

    A worker that stands for one rank, by ``@N`` behind its URL or by the label ``dp_rank``, has that one. Else it has,
    with ``dp_aware``, all that are behind its address: of ``dp_size`` ranks in all ``dp_size_local`` from
    ``dp_start_rank`` on (labels; all by default), unless its engine has one only, or takes no pins.
    """
    named = split_rank(worker.url)[1]
    if named is None and "dp_rank" in worker.labels:
        named = _number(worker, "dp_rank", -1)
    if named is not None and named >= 0:
        return (named,)
    if not dp_aware:
        return ()
    size = _number(worker, "dp_size", 1)
    if not 1 < size <= _MOST or (worker.features is not None and "dp_rank" not in worker.features):
        return ()
    start = _number(worker, "dp_start_rank", 0)
    local = _number(worker, "dp_size_local", size - start)
    return range(start, min(start + local, size)) if start < size else ()


def _number(worker: WorkerRecord, label: str, default: int) -> int:
    text = worker.labels.get(label, "")
    return int(text) if text.isascii() and text.isdigit() else default
