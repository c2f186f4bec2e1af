"""Addresses of HTTP engines: ``http://host:port``, ``https://host``, with ``@rank`` behind for a data-parallel rank.

The rank is part of a worker's name, never of an address that is connected to (field case RO-05).
"""

import re
from urllib.parse import urlsplit

import msgspec

_RANK = re.compile(r"@(\d{1,5})$")
_PORTS = {"http": 80, "https": 443}


class HttpAddress(msgspec.Struct, frozen=True):
    """``base`` is a path prefix without the slash at its end; ``rank`` is None unless the worker is one of several."""

    host: str
    port: int
    tls: bool
    base: str = ""
    rank: int | None = None

    @property
    def authority(self) -> str:
        """What the header ``host`` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


def parse(url: str) -> HttpAddress:
    """Parse an HTTP engine's URL; without a scheme it is plain HTTP.

    Raises:
        ValueError: another scheme, no host, or parts an engine's address cannot have.
    """
    plain, rank = split_rank(url)
    parts = urlsplit(plain if "://" in plain else f"http://{plain}")
    if parts.scheme not in _PORTS:
        raise ValueError(f"{url!r}: the scheme must be http or https")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{url!r}: an HTTP engine's address is http://host:port, with a path at most")
    try:
        port = parts.port if parts.port is not None else _PORTS[parts.scheme]
    except ValueError:
        port = 0
    if not parts.hostname or not port:
        raise ValueError(f"{url!r}: a host and a valid port are required")
    return HttpAddress(parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"), rank)


def split_rank(url: str) -> tuple[str, int | None]:
    """The URL of the engine itself, and the data-parallel rank that is named behind it."""
    found = _RANK.search(url)
    return (url[: found.start()], int(found[1])) if found else (url, None)
