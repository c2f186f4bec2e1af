"""Who of two engines that need each other is to blame, when both may complain (spec engine-contract 5.1).

An engine whose partner is gone or has turned the request away often fails too, a moment earlier or later. A connection
that broke is never the partner's doing, and neither is a refusal (too busy, a request that cannot be served); of two
other complaints the first one counts.
"""

from collections.abc import Mapping

from smg.core.errors import GatewayError
from smg.engines.transport.errors import RpcError

# How long the second of two failures is waited for, in seconds, before the first one is believed.
VERDICT_SECS = 0.25


def gone(error: GatewayError) -> bool:
    """Whether the engine's connection broke, which its partner's failure cannot cause."""
    if isinstance(error, RpcError):
        return error.rpc == "UNAVAILABLE"
    return error.worker_fault and error.status == 502


def blamed(failures: Mapping[str, GatewayError]) -> str | None:
    """The leg to blame, of failures in the order they came; None when there are none."""
    return min(failures, key=lambda leg: _rank(failures[leg]), default=None)


def _rank(error: GatewayError) -> int:
    if gone(error):
        return 0
    return 2 if error.worker_fault else 1


def too_late(patience: float) -> GatewayError:
    """The error of a prefill engine that has not come to an end in ``patience`` seconds."""
    return GatewayError(
        "upstream_timeout",
        "the engine did not answer in time",
        detail=f"prefill took longer than {patience:g} s",
        worker_fault=True,
    )
