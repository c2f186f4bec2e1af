"""What one worker's retries and circuit breaker do otherwise than the settings say (spec api-and-ops 1.11)."""

from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from smg.config.settings import RoutingSettings

_Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
_Seconds = Annotated[float, Meta(gt=0, le=86_400)]

# Fields by the settings they stand for.
_SETTINGS = {
    "max_retries": "retry_max_retries",
    "initial_backoff_ms": "retry_initial_backoff_ms",
    "max_backoff_ms": "retry_max_backoff_ms",
    "backoff_multiplier": "retry_backoff_multiplier",
    "jitter_factor": "retry_jitter_factor",
    "disable_retry": "disable_retries",
    "cb_timeout_secs": "cb_timeout_duration_secs",
    "cb_window_secs": "cb_window_duration_secs",
}


class ResilienceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Overrides for one worker, with the limits of the settings; None is what the settings say.

    Those of retries hold when this worker has failed: whether, how often and after what wait to go on from there.
    """

    max_retries: Annotated[int, Meta(ge=1, le=100)] | None = None
    initial_backoff_ms: _Milliseconds | None = None
    max_backoff_ms: _Milliseconds | None = None
    backoff_multiplier: Annotated[float, Meta(ge=1, le=100)] | None = None
    jitter_factor: Annotated[float, Meta(ge=0, le=1)] | None = None
    disable_retry: bool | None = None
    cb_failure_threshold: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    cb_success_threshold: Annotated[int, Meta(ge=1, le=100)] | None = None
    cb_timeout_secs: _Seconds | None = None
    cb_window_secs: _Seconds | None = None
    disable_circuit_breaker: bool | None = None

    @property
    def given(self) -> dict[str, float | bool]:
        """What is not as the settings say."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def over(self, settings: RoutingSettings) -> RoutingSettings:
        """``settings`` as they are for this worker."""
        return replace(settings, **{_SETTINGS.get(name, name): value for name, value in self.given.items()})
