"""How a model names its policy and the parameters of it (spec routing 7).

    cache_aware
    cache_aware: cache_threshold=0.5, cache_request_price=64

Parameters are called as in ``RoutingSettings``; what is not given is the gateway's. This is what the label ``policy``
of a worker may say, and what control may be told for a model.
"""

from typing import Any

import msgspec

from smg.config.settings import RoutingSettings

# What each policy reads of the settings.
_BALANCE = frozenset({"balance_abs_threshold", "balance_rel_threshold"})
PARAMETERS: dict[str, frozenset[str]] = {
    "bucket": _BALANCE | {"bucket_adjust_interval_secs"},
    "cache_aware": _BALANCE
    | {
        "block_size",
        "cache_request_price",
        "cache_threshold",
        "balance_token_usage_threshold",
        "overload_token_usage_threshold",
    },
    "consistent_hashing": frozenset(),
    "least_load": frozenset({"least_load_kv_pressure_weight", "least_load_default_throughput"}),
    "manual": frozenset({"assignment_mode", "max_idle_secs"}),
    "passthrough": frozenset(),
    "power_of_two": frozenset(),
    "prefix_hash": frozenset({"prefix_token_count", "prefix_hash_load_factor"}),
    "random": frozenset(),
    "round_robin": frozenset(),
}


def name_of(text: str) -> str:
    """The policy that ``text`` names, whatever it is: lower case, words joined by ``_``."""
    return text.partition(":")[0].strip().lower().replace("-", "_")


def read(text: str, settings: RoutingSettings) -> RoutingSettings:
    """``settings`` with the policy and the parameters that ``text`` gives.

    Raises:
        ValueError: there is no such policy, it has no such parameter, or a value does not fit.
    """
    name = name_of(text)
    if name not in PARAMETERS:
        raise ValueError(f"{name[:64]!r} is no policy of a model; there are: {', '.join(PARAMETERS)}")
    given: dict[str, Any] = {"policy": name}
    for part in filter(None, map(str.strip, text.partition(":")[2].split(","))):
        parameter, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or parameter not in PARAMETERS[name]:
            known = ", ".join(sorted(PARAMETERS[name])) or "none"
            raise ValueError(f"{parameter[:64]!r} is no parameter of {name}; there are: {known}")
        given[parameter] = value
    try:
        chosen = msgspec.convert(given, RoutingSettings, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return msgspec.structs.replace(settings, **{field: getattr(chosen, field) for field in given})
