"""Routing hints that any generation request may carry in its headers (spec api-and-ops 2.1)."""

from collections.abc import Mapping

from smg.core.request import Hints


def hints(headers: Mapping[str, str], *, dp_rank: int | None = None) -> Hints:
    """Read the hints; an empty header is an absent one."""
    return Hints(
        routing_key=headers.get("x-smg-routing-key") or None,
        target_worker=headers.get("x-smg-target-worker") or None,
        priority=headers.get("x-smg-priority") or None,
        dp_rank=dp_rank,
    )
