"""The worker a client names itself, in the header ``x-smg-target-worker`` (spec routing 1.5).

There is no fallback: who names a worker wants that one, or to hear that it cannot be had.
"""

from collections.abc import Sequence

from smg.core.errors import GatewayError, bad_request
from smg.routing.candidates import Candidates, Place

HEADER = "x-smg-target-worker"


class TargetDown(GatewayError):
    """The named worker is known and cannot take the request now. Waiting for others would be of no use."""

    def __init__(self) -> None:
        super().__init__("no_available_workers", f"the worker that the header {HEADER} names is not available")


def numbers(wanted: str, everyone: Sequence[Place]) -> list[int]:
    """Which of ``everyone`` are meant: by a worker's id, its URL or ``URL@RANK``, else by a number in this order."""
    found = [number for number, place in enumerate(everyone) if wanted in (place.id, place.url, place.name)]
    return found or [number for number in range(len(everyone)) if str(number) == wanted]


def position(wanted: str, candidates: Candidates) -> int:
    """Position of the named worker, or of its first rank that is ready.

    Raises:
        GatewayError: ``invalid_value`` (400) when the model has no such worker; ``TargetDown`` (503) when it is not
            ready, or was tried.
    """
    meant = numbers(wanted, candidates.everyone)
    if not meant:
        count = len(candidates.everyone)
        told = f"must be the id, the URL or the number (0 to {count - 1}) of one of the model's workers"
        raise bad_request(f"{HEADER}: {told}", param=HEADER)
    for number in meant:
        found = candidates.placement.position(number)
        if found >= 0:
            return found
    raise TargetDown
