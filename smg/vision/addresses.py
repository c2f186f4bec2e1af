"""Which network addresses a client's URL may lead to (cases MM-02, spec multimodal 3).

A gateway stands inside a network that its clients are not in. Whatever address a name resolves to is judged here, right
before the connection goes to that very address; nothing is resolved a second time.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Everything of the IANA IPv4 special-purpose registry that is not ordinary public space, with the reason told.
_SPECIAL_4 = [
    (ipaddress.IPv4Network(text), why)
    for text, why in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier or cloud"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
]
# In IPv6 only 2000::/3 is public at all; these parts of it are not.
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_6 = [
    (ipaddress.IPv6Network(text), why)
    for text, why in (
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
]
_WHY_NOT_PUBLIC_6 = [
    (ipaddress.IPv6Network(text), why)
    for text, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
    )
]
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4 = ipaddress.IPv6Network("2002::/16")

# Metadata services that a wide allow list must not open: they need an entry of their own.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")
)

_NUMERIC_LABEL = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)\Z")


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks in CIDR form; a plain address stands for itself. Raises ValueError, naming the entry."""
    networks: list[Network] = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ValueError(f"not a network: {text!r} ({error})") from None
    return tuple(networks)


def refusal(address: Address, allowed: tuple[Network, ...] = ()) -> str | None:
    """Why ``address`` must not be connected to ("loopback", "private", …), or None if it may.

    An IPv4 address inside an IPv6 one (mapped, compatible, translated, NAT64, 6to4) is judged as well. ``allowed``
    opens otherwise refused networks; a metadata address opens only by an entry for itself alone.
    """
    inner = _embedded(address)
    if address in _METADATA or inner in _METADATA:
        opened = any(net.num_addresses == 1 and (address in net or (inner or address) in net) for net in allowed)
        return None if opened else "a metadata service"
    if any(address in net or (inner is not None and inner in net) for net in allowed):
        return None
    if inner is not None:
        return _refusal_4(inner)
    if isinstance(address, ipaddress.IPv4Address):
        return _refusal_4(address)
    return _refusal_6(address)


def literal(host: str) -> Address | None:
    """The address ``host`` spells in its one canonical form, or None for a name.

    Raises:
        ValueError: ``host`` is a number in a form that only C libraries read as an address (decimal, octal,
            hexadecimal, fewer than four parts) or carries an IPv6 zone. Nobody needs these except to hide an address.
    """
    host = host.removeprefix("[").removesuffix("]")
    if "%" in host:
        raise ValueError("an address with a zone is not accepted")
    if ":" in host:
        return ipaddress.IPv6Address(host)
    if not _NUMERIC_LABEL.match(host.rstrip(".").rpartition(".")[2]):
        return None
    try:
        return ipaddress.IPv4Address(host)
    except ValueError:
        raise ValueError("an address must be written as four decimal numbers") from None


def _refusal_4(address: ipaddress.IPv4Address) -> str | None:
    return next((why for net, why in _SPECIAL_4 if address in net), None)


def _refusal_6(address: ipaddress.IPv6Address) -> str | None:
    if address not in _PUBLIC_6:
        return next((why for net, why in _WHY_NOT_PUBLIC_6 if address in net), "reserved")
    return next((why for net, why in _SPECIAL_6 if address in net), None)


def _embedded(address: Address) -> ipaddress.IPv4Address | None:
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    number = int(address)
    if address in _6TO4:
        return ipaddress.IPv4Address((number >> 80) & 0xFFFFFFFF)
    # ::0 and ::1 are addresses of their own, not IPv4-compatible ones.
    if number > 1 and any(address in net for net in (_MAPPED, _COMPATIBLE, _TRANSLATED, _NAT64)):
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return None
