"""Where images are fetched from: tables of addresses, and every IPv4 address in every form that hides it."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoding.image_header import image_type
from gateway.fetching.public_addresses import may_fetch_from

PRIVATE = [
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.9.9.9", "168.63.129.16"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1"),
    *("198.51.100.1", "203.0.113.9", "224.0.0.1", "224.0.1.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1", "ff0e::1"),
    *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1"),
    *("2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "fec0::1", "5f00::1", "100::1", "2606:4700::1%1"),
    *("localhost", "", "1.2.3", "0x7f.1", "2130706433", "127.0.0.1:80"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.32.0.1", "192.0.1.1", "2606:4700::1111"]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_not_asked(address: str) -> None:
    assert not may_fetch_from(address)


@pytest.mark.parametrize("address", [*PUBLIC, "::ffff:8.8.8.8", "2a00:1450:4001::1", "2001:4860:4860::8888"])
def test_public_addresses_are_asked(address: str) -> None:
    assert may_fetch_from(address)


@pytest.mark.parametrize(
    ("address", "network", "allowed"),
    [
        ("10.0.0.5", "10.0.0.0/24", True),
        ("10.0.1.5", "10.0.0.0/24", False),
        ("::ffff:10.0.0.5", "10.0.0.0/24", True),
        ("fd00::5", "fd00::/8", True),
        ("fd00::5", "10.0.0.0/8", False),
        ("8.8.8.8", "10.0.0.0/8", True),
    ],
)
def test_named_networks_are_asked_too(address: str, network: str, allowed: bool) -> None:
    assert may_fetch_from(address, [ipaddress.ip_network(network)]) is allowed


@given(st.ip_addresses(v=4))
def test_no_form_of_an_address_is_allowed_where_the_address_is_not(address: ipaddress.IPv4Address) -> None:
    allowed = may_fetch_from(str(address))
    assert may_fetch_from(f"::ffff:{address}") is allowed
    for prefix in ("::", "64:ff9b::"):
        assert not may_fetch_from(f"{prefix}{address}")
    high, low = int(address) >> 16, int(address) & 0xFFFF
    assert not may_fetch_from(f"2002:{high:x}:{low:x}::1")


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_not_asked(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        mapped = getattr(address, "ipv4_mapped", None)
        assert not may_fetch_from(str(address)) or (mapped is not None and may_fetch_from(str(mapped)))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", ""),
        (b"BM6", "image/bmp"),
        (b"<svg xmlns=", ""),
        (b"%PDF-1.7", ""),
        (b"", ""),
    ],
)
def test_an_image_is_told_by_its_first_bytes(data: bytes, kind: str) -> None:
    assert image_type(data) == kind
