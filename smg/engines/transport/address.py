"""Engine addresses: ``grpc://host:port`` (plaintext), ``grpcs://host:port`` (TLS), or a bare ``host:port``."""

from urllib.parse import urlsplit

import msgspec


class Address(msgspec.Struct, frozen=True):
    """``target`` is what a channel connects to (``host:port``, IPv6 hosts in brackets)."""

    target: str
    tls: bool


def parse(url: str) -> Address:
    """Parse an engine's URL.

    Raises:
        ValueError: another scheme, no port, or parts an engine's address cannot have.
    """
    parts = urlsplit(url if "://" in url else f"grpc://{url}")
    if parts.scheme not in ("grpc", "grpcs"):
        raise ValueError(f"{url!r}: the scheme must be grpc or grpcs")
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{url!r}: an engine's address is grpc://host:port and nothing more")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or not port:
        raise ValueError(f"{url!r}: host and port are required")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Address(target=f"{host}:{port}", tls=parts.scheme == "grpcs")
