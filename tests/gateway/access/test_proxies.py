"""Requests behind a proxy: a trusted proxy tells the real client's address, and requests that another proxy forwarded have no rights."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from gateway.access.proxies import client_address
from protocol.config.fields import setting_fields
from protocol.failures import Code, Failure
from protocol.messages.models import UnloadModel
from tests.gateway.access.conftest import MakeApp
from tests.gateway.api.error_bodies import is_error

TRUSTED = [ipaddress.ip_network("127.0.0.1/32"), ipaddress.ip_network("10.0.0.0/8")]


@pytest.mark.parametrize(
    ("peer", "header", "client"),
    [
        ("127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "127.0.0.1, 203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "203.0.113.9, 10.1.2.3", "203.0.113.9"),
        ("192.0.2.1", "127.0.0.1", "192.0.2.1"),
        ("192.0.2.1", "", "192.0.2.1"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "10.1.2.3, 127.0.0.1", "10.1.2.3"),
        ("127.0.0.1", "spoofed, 203.0.113.9, 10.1.2.3", "203.0.113.9"),
        # The client is unknown.
        ("127.0.0.1", "", ""),
        ("127.0.0.1", " ", ""),
        ("127.0.0.1", ",,,", ""),
        ("127.0.0.1", "127.0.0.1,", ""),
        ("127.0.0.1", "203.0.113.9,,10.1.2.3", ""),
        ("127.0.0.1", "nonsense", ""),
        ("127.0.0.1", "unknown, 10.1.2.3", ""),
        ("127.0.0.1", "localhost", ""),
        ("127.0.0.1", "127.0.0.1 127.0.0.1", ""),
        ("127.0.0.1", "127.1", ""),
        ("127.0.0.1", "2130706433", ""),
        ("127.0.0.1", "0x7f.0.0.1", ""),
        ("127.0.0.1", "::1:x", ""),
        ("127.0.0.1", "[::1", ""),
        ("127.0.0.1", '"127.0.0.1"', ""),
        # Ports, brackets, zones, and IPv4 that is written as IPv6.
        ("127.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        ("127.0.0.1", "203.0.113.9:4711, 10.1.2.3:80", "203.0.113.9"),
        ("127.0.0.1", "127.0.0.1:4711", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1:port", ""),
        ("127.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("127.0.0.1", "[2001:db8::1]", "2001:db8::1"),
        ("127.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("127.0.0.1", "fe80::1%eth0", "fe80::1"),
        ("127.0.0.1", "[fe80::1%eth0]:80", "fe80::1"),
        ("127.0.0.1", "::ffff:203.0.113.9", "203.0.113.9"),
        ("::ffff:127.0.0.1", "203.0.113.9, ::ffff:10.1.2.3", "203.0.113.9"),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_trusted_proxy(peer: str, header: str, client: str) -> None:
    assert client_address(peer, header, TRUSTED) == client


@pytest.mark.parametrize(
    ("headers", "proxies", "status"),
    [
        ({}, [], 200),
        ({"X-Forwarded-For": "127.0.0.1"}, [], 403),
        ({"Forwarded": "for=127.0.0.1"}, [], 403),
        ({"Via": "1.1 proxy"}, [], 403),
        ({"X-Real-IP": "127.0.0.1"}, [], 403),
        ({"X-Forwarded-Proto": "https"}, ["10.0.0.0/8"], 403),
        ({"X-Forwarded-For": "127.0.0.1"}, ["127.0.0.1"], 200),
        ({"X-Forwarded-For": ",,,"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": " "}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": "nonsense"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": "127.0.0.1,"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": "127.0.0.1:4711"}, ["127.0.0.1"], 200),
        ({"X-Forwarded-For": "[::1]:4711"}, ["127.0.0.1"], 200),
        ({"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "evil.example"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost, evil.example"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "evil@localhost"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "evil.example, localhost:80"}, ["127.0.0.1"], 200),
        ({"X-Forwarded-Host": "evil.example"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Host": "localhost"}, ["127.0.0.1"], 403),
        ({"Via": "1.1 proxy"}, ["127.0.0.1"], 403),
        ({"X-Forwarded-Proto": "https"}, ["127.0.0.1"], 403),
    ],
)
def test_without_keys_a_forwarded_request_changes_nothing(
    make_app: MakeApp, headers: dict[str, str], proxies: list[str], status: int
) -> None:
    app = make_app(trusted_proxies=proxies)
    app.reports[UnloadModel] = ["m"]
    result = app("POST", "/v1/unload", {"model_name": "m"}, headers=headers)
    assert result.status_code == status
    assert len(app.bus.sent) == (status == 200)
    if status == 403:
        is_error(result, 403, "forbidden")


@pytest.mark.parametrize(("version", "status"), [("1.0", 403), ("1.1", 200)])
def test_without_keys_a_request_of_a_proxy_that_adds_no_header_changes_nothing(
    make_app: MakeApp, version: str, status: int
) -> None:
    """This is nginx with only ``proxy_pass``: what it sends has the server's own address as ``Host``."""
    app = make_app()
    app.reports[UnloadModel] = ["m"]
    assert app("POST", "/v1/unload", {"model_name": "m"}, http_version=version).status_code == status


def test_a_forwarded_request_may_use_models(make_app: MakeApp) -> None:
    app = make_app()
    app.answers["chat/completions"] = {"choices": [{"message": {"content": "hi"}}]}
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert app("POST", "/v1/chat/completions", body, headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 200


@pytest.mark.parametrize(("text", "good"), [("10.0.0.0/8,::1", True), ("10.0.0.1/8", False), ("proxy", False)])
def test_a_network_is_checked_when_it_is_set(text: str, good: bool) -> None:
    field = setting_fields()["trusted_proxies"]
    if good:
        assert field.parse_text(text) == text.split(",")
    else:
        with pytest.raises(ValueError):
            field.parse_text(text)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_program_of_this_machine_is_an_administrator_however_its_address_is_written(
    make_app: MakeApp, address: str
) -> None:
    app = make_app()
    app.reports[UnloadModel] = Failure(Code.INTERNAL, "it broke", detail="why")
    result = app("POST", "/v1/unload", {"model_name": "m"}, remote_addr=address)
    assert result.json["error"]["detail"] == "why"
