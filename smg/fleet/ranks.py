"""Which data-parallel ranks an engine has, from its labels (spec routing 4.6; field case RO-05).

Rank numbers are global: of an engine on several machines each has a part, and takes requests for that part only.
"""

from collections.abc import Sequence

from smg.fleet.records import WorkerRecord

# More is a mistake in a label, and would take all slots of the region.
_MOST = 1024


def ranks_of(worker: WorkerRecord) -> Sequence[int]:
    """The global numbers of the ranks behind the worker's address; none when it has one, or takes no pins.

    Labels: ``dp_size`` ranks in all, of which ``dp_size_local`` from ``dp_start_rank`` on are here (all by default).
    """
    size = _number(worker, "dp_size", 1)
    if not 1 < size <= _MOST or (worker.features is not None and "dp_rank" not in worker.features):
        return ()
    start = _number(worker, "dp_start_rank", 0)
    local = _number(worker, "dp_size_local", size - start)
    return range(start, min(start + local, size)) if start < size else ()


def _number(worker: WorkerRecord, label: str, default: int) -> int:
    text = worker.labels.get(label, "")
    return int(text) if text.isascii() and text.isdigit() else default
