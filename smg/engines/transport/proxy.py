"""Whether gRPC would reach an engine through an HTTP proxy (gRPC core: "Default HTTP Proxy Mapper")."""

import ipaddress
import os

from smg.engines.transport.address import Address

# Of each the first that is set counts, also when it is empty.
_PROXY = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def proxied(address: Address) -> bool:
    """Whether the environment names a proxy that gRPC takes to ``address``.

    Exceptions are separated by commas: ends of names, or networks (CIDR) for a host that is an IP address.
    """
    if not proxy_set():
        return False
    host = address.target.rpartition(":")[0].strip("[]").lower()
    return not any(_covers(entry.strip().lower(), host) for entry in _first_set(_EXCEPTIONS).split(","))


def proxy_set() -> bool:
    """Whether the environment names a proxy at all."""
    return bool(_first_set(_PROXY))


def _first_set(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if name in os.environ), "")


def _covers(entry: str, host: str) -> bool:
    if not entry:
        return False
    if host.endswith(entry):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
