"""Bounds of numbers that llguidance gets wrong.

An exclusive bound that is a whole number lets that number through where the other bound is further from zero, but by
less than one: ``{"exclusiveMinimum": 0, "maximum": 0.5}`` rules 0 out, and llguidance takes it. An inclusive bound
right behind says the same to it.
"""

from typing import Any

# What a schema has of values, not of schemas.
_VALUES = ("const", "enum", "default", "examples")
# How much of the way to the other bound is left out.
_PART = 1e-6
# From here on numbers lie further apart than that.
_LARGE = 1e6


def narrowed(schema: Any) -> Any:
    """``schema`` (of JSON's types) with such bounds put right, in it and all below it."""
    if isinstance(schema, list):
        return [narrowed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    below = {key: item if key in _VALUES else narrowed(item) for key, item in schema.items()}
    for exclusive, inclusive, *others in (
        ("exclusiveMinimum", "minimum", "maximum", "exclusiveMaximum"),
        ("exclusiveMaximum", "maximum", "minimum", "exclusiveMinimum"),
    ):
        bound = _number(below.get(exclusive))
        if bound is None or bound % 1 or inclusive in below or "multipleOf" in below:
            continue
        ends = [end for other in others if (end := _number(below.get(other))) is not None]
        end = min(ends, key=lambda one: abs(one - bound), default=bound)
        if abs(end) > abs(bound) and 0 < abs(end - bound) < 1:
            del below[exclusive]
            below[inclusive] = bound + (end - bound) * _PART
    return below


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _LARGE:
        return None
    return value
