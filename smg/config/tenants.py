"""How tenants are written in settings: their keys and their limits (spec api-and-ops 4.7)."""

import re
from typing import NamedTuple

_NAME = re.compile(r"[^\s:=/]+")
# Those without a key of their own: by an API key's digest, an address, or the header that is trusted.
_KNOWN_BY = re.compile(r"(key-[0-9a-f]{8}|(ip|header):\S+)")
_LIMIT = re.compile(r"(?P<tenant>\S+)=(?P<requests>\d{1,9})/(?P<tokens>\d{1,9})")


class TenantLimit(NamedTuple):
    """Generations and tokens per minute; 0 is no limit."""

    requests: int
    tokens: int


def tenant_key(text: str) -> tuple[str, str]:
    """The name and the key of ``TENANT:KEY``. Raises ValueError, without the key in it."""
    name, _, key = text.partition(":")
    if not _NAME.fullmatch(name) or _KNOWN_BY.fullmatch(name):
        raise ValueError("not TENANT:KEY with a name without spaces, : = or /, that is not like key-01234567")
    if not key.strip() or key != key.strip():
        raise ValueError(f"the key of {name!r} must not be empty or have spaces around it")
    return name, key


def tenant_limit(text: str) -> tuple[str, TenantLimit]:
    """The tenant and the limits of ``TENANT=REQUESTS/TOKENS``. Raises ValueError."""
    found = _LIMIT.fullmatch(text)
    if found is None or not (_NAME.fullmatch(found["tenant"]) or _KNOWN_BY.fullmatch(found["tenant"])):
        raise ValueError(f"{text!r} is not TENANT=REQUESTS/TOKENS, such as acme=600/100000")
    return found["tenant"], TenantLimit(int(found["requests"]), int(found["tokens"]))
