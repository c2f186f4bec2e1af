"""One setting, and a group of them: what the groups of the settings tree are made of."""

from typing import cast

import msgspec
from msgspec import Meta


def option(
    flag: str,
    text: str,
    *aliases: str,
    secret: bool = False,
    gt: float | None = None,
    ge: float | None = None,
    le: float | None = None,
) -> Meta:
    """Describe one setting: its flag (with aliases), help text, whether it is a secret, and numeric limits."""
    limits = {name: limit for name, limit in (("gt", gt), ("ge", ge), ("le", le)) if limit is not None}
    extra = {"flag": flag, "aliases": aliases, "secret": secret}
    return cast("Meta", Meta(description=text, extra=extra, **limits))  # type: ignore[call-overload]


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of settings: its fields become flags, variables and keys."""
