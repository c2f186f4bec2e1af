"""Keys: how a client presents one, and whether it is one of ours (spec api-and-ops 5, case AU-01)."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping


def presented(headers: Mapping[str, str]) -> list[str]:
    """The keys a request carries: ``Authorization: Bearer KEY`` (the scheme in any case) and ``x-api-key: KEY``."""
    out = []
    authorization, key = headers.get("authorization"), headers.get("x-api-key")
    if authorization is not None:
        scheme, _, value = authorization.strip().partition(" ")
        if scheme.lower() == "bearer" and value.strip():
            out.append(value.strip())
    if key is not None and key.strip():
        out.append(key.strip())
    return out


class KeySet:
    """Configured keys, kept as SHA-256 digests only. ``tenants`` are names with a key each."""

    def __init__(self, keys: Iterable[str], tenants: Iterable[tuple[str, str]] = ()) -> None:
        self._digests = [(_digest(key), f"key-{_digest(key).hex()[:8]}") for key in keys]
        self._digests += [(_digest(key), tenant) for tenant, key in tenants]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def match(self, key: str) -> str | None:
        """Name of the configured key that ``key`` equals (safe to log), its tenant's if it has one; or None.

        Takes the same time for every wrong key: digests have one length, and all of them are compared.
        """
        digest = _digest(key)
        found: str | None = None
        for own, name in self._digests:
            if hmac.compare_digest(own, digest):
                found = name
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
