"""How tenants are written in settings: their keys and their limits (spec api-and-ops 4.7)."""

import re
from typing import NamedTuple

_NAME = re.compile(r"[^\s:=/]+")
# Those without a key of their own: by an API key's digest, an address, or the header that is trusted.
_KNOWN_BY = re.compile(r"(key-[0-9a-f]{8}|(ip|header):\S+)")
_LIMIT = re.compile(r"(?P<tenant>\S+)=(?P<requests>\d{1,9})/(?P<tokens>\d{1,9})")
_MODEL_LIMIT = re.compile(r"(?P<tenant>\S+)@(?P<model>[^\s@*]+\*?)=(?P<requests>\d{1,9})/(?P<tokens>\d{1,9})")

# The tenant of rules that hold for each tenant.
EACH = "*"


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
    if found is None or not _is_tenant(found["tenant"]):
        raise ValueError(f"{text!r} is not TENANT=REQUESTS/TOKENS, such as acme=600/100000")
    return found["tenant"], TenantLimit(int(found["requests"]), int(found["tokens"]))


def tenant_model_limit(text: str) -> tuple[str, tuple[str, TenantLimit]]:
    """The tenant (or ``EACH``), the model and the limits of ``TENANT@MODEL=REQUESTS/TOKENS``.

    A model that ends in ``*`` is all that begin like it. Raises ValueError.
    """
    found = _MODEL_LIMIT.fullmatch(text)
    if found is None or not (found["tenant"] == EACH or _is_tenant(found["tenant"])):
        raise ValueError(f"{text!r} is not TENANT@MODEL=REQUESTS/TOKENS, such as acme@llama-*=60/10000")
    return found["tenant"], (found["model"], TenantLimit(int(found["requests"]), int(found["tokens"])))


def _is_tenant(name: str) -> bool:
    return bool(_NAME.fullmatch(name) or _KNOWN_BY.fullmatch(name))
