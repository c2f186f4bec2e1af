"""Which addresses a client may reach (cases MM-02)."""

import ipaddress

import pytest

from smg.vision.addresses import literal, parse_networks, refusal


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0.0.0.0", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "shared by a carrier or cloud"),
        ("169.254.1.1", "link-local"),
        ("169.254.169.254", "a metadata service"),
        ("100.100.100.200", "a metadata service"),
        ("168.63.129.16", "a metadata service"),
        ("192.0.0.192", "a metadata service"),
        ("198.18.0.1", "reserved"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fe80::1", "link-local"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "a metadata service"),
        ("ff02::1", "multicast"),
        ("2001:db8::1", "reserved"),
        ("2001::1", "reserved"),
        ("5f00::1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:0:192.168.0.1", "private"),
        ("::127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "a metadata service"),
        ("64:ff9b:1::1", "reserved"),
        ("2002:7f00:1::", "loopback"),
        ("2002:c0a8:101::1", "private"),
    ],
)
def test_refused(address, why):
    assert refusal(ipaddress.ip_address(address)) == why


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "172.15.255.255", "172.32.0.1", "100.63.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"],
)
def test_public(address):
    assert refusal(ipaddress.ip_address(address)) is None


def test_an_allowed_network_opens_only_itself_even_when_embedded():
    allowed = parse_networks(["10.1.0.0/16"])
    assert refusal(ipaddress.ip_address("10.1.2.3"), allowed) is None
    assert refusal(ipaddress.ip_address("::ffff:10.1.2.3"), allowed) is None
    assert refusal(ipaddress.ip_address("10.2.0.1"), allowed) == "private"


def test_a_metadata_address_needs_an_entry_of_its_own():
    metadata = ipaddress.ip_address("169.254.169.254")
    assert refusal(metadata, parse_networks(["0.0.0.0/0"])) == "a metadata service"
    assert refusal(metadata, parse_networks(["169.254.169.254"])) is None


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.01",
        "127.0.0.1.",
        "1.2.3.256",
        "0x",
        "fe80::1%eth0",
        "[::1%25lo]",
        "[::g]",
    ],
)
def test_numbers_in_disguise_are_refused(host):
    with pytest.raises(ValueError, match=r"."):
        literal(host)


@pytest.mark.parametrize(
    ("host", "address"),
    [("1.2.3.4", "1.2.3.4"), ("[::1]", "::1"), ("example.com", None), ("localhost", None), ("1.2.3.4.example", None)],
)
def test_literals(host, address):
    assert literal(host) == (ipaddress.ip_address(address) if address else None)


def test_a_wrong_network_is_named():
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/8"):
        parse_networks(["10.0.0.1/8"])
