"""Who may call which route: the access classes public, data and admin (spec api-and-ops 1.1 and 5, case AU-02)."""

import ipaddress
from collections.abc import Mapping
from typing import Literal, TypeAlias

from smg.config.settings import SecuritySettings
from smg.config.tenants import tenant_key
from smg.core.context import ANONYMOUS, Principal
from smg.core.errors import GatewayError
from smg.security.keys import KeySet, presented

Access: TypeAlias = Literal["public", "data", "admin"]

# A proxy adds one of these; then the peer is the proxy, and its being on this machine says nothing about the caller.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def is_loopback(address: str) -> bool:
    """Tell whether a peer address (as the socket reports it) is this machine's loopback."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


class Gate:
    """Decides on each request. Without any key, data routes are open and admin routes answer to loopback."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._api = KeySet(settings.api_key, map(tenant_key, settings.tenant_api_key))
        self._header = settings.tenant_header_name.lower() if settings.trust_tenant_header else ""
        self._admin = KeySet(settings.admin_key)

    def warning(self) -> str | None:
        """What to tell the operator once at the start, or None."""
        if self._api or self._admin:
            return None
        return "no --api-key and no --admin-key: everyone who reaches the port can use the inference routes"

    def check(self, access: Access, headers: Mapping[str, str], peer: str) -> Principal:
        """Return who calls. ``peer`` is the connection's own address; forwarding headers can only take rights away.

        Raises:
            GatewayError: ``invalid_api_key`` (401) or ``permission_denied`` (403).
        """
        if access == "public":
            return ANONYMOUS
        keys = presented(headers)
        if not keys and access == "data" and not self._header and not self._api:
            # A gateway without keys, and a client without any.
            return self._data(None, keys, "", peer)
        admin = next(filter(None, map(self._admin.match, keys)), None)
        if admin is not None:
            return Principal(name=admin, tenant=admin, admin=True)
        data = next(filter(None, map(self._api.match, keys)), None)
        if access == "data":
            return self._data(data, keys, headers.get(self._header, "") if self._header else "", peer)
        return self._administration(data, keys, is_loopback(peer) and not any(name in headers for name in _FORWARDED))

    def _data(self, name: str | None, keys: list[str], told: str, peer: str) -> Principal:
        if name is not None:
            return Principal(name=name, tenant=name)
        if self._api:
            raise _unknown(keys)
        if told:
            return Principal(tenant=f"header:{told}")
        return Principal(tenant=f"ip:{peer}") if peer else ANONYMOUS

    def _administration(self, name: str | None, keys: list[str], local: bool) -> Principal:
        if self._admin:
            if name is not None:
                raise GatewayError("permission_denied", "This route needs an admin key.")
            raise _unknown(keys)
        if self._api and name is None:
            raise _unknown(keys)
        if not local:
            raise GatewayError("permission_denied", "Without an admin key this route only answers to this machine.")
        return Principal(name=name or "loopback", admin=True)


def _unknown(keys: list[str]) -> GatewayError:
    if keys:
        return GatewayError("invalid_api_key", "Incorrect API key provided.")
    return GatewayError(
        "invalid_api_key", "No API key provided. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
    )
