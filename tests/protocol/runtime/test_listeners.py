"""Which users' programs listen on a port, and which of them gets a connection to an address."""

from __future__ import annotations

import os
import socket
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from protocol.runtime import listeners
from protocol.runtime.listeners import answering_users, listening_users
from tests.support.ports import free_port

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST = "00000000:00000000 00:00000000 00000000"


def kernels(address: str) -> str:
    """Write an address as the kernel does: in words of its own byte order."""
    packed = ip_address(address).packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


EXACT, ANY, OTHER = map(kernels, ("127.0.0.1", "0.0.0.0", "127.0.0.2"))
ANY_V6, MAPPED, LOCAL_V6 = map(kernels, ("::", "::ffff:127.0.0.1", "::1"))


def line(address: str, user: int, state: str = "0A", port: str = "1F90") -> str:
    return f"   0: {address}:{port} {'0' * len(address)}:0000 {state} {REST} {user:5d}        0 1 1 0 100 0 0 10 0\n"


@pytest.mark.parametrize(
    ("lines", "address", "users"),
    [
        ([line(EXACT, 5)], "127.0.0.1", {5}),
        ([line(ANY, 5)], "127.0.0.1", {5}),
        ([line(OTHER, 6)], "127.0.0.1", set()),
        ([line(EXACT, 5), line(OTHER, 6), line(ANY_V6, 7)], "127.0.0.1", {5}),
        ([line(EXACT, 5), line(EXACT, 6)], "127.0.0.1", {5, 6}),
        ([line(ANY, 5), line(ANY_V6, 7)], "127.0.0.1", {5}),
        ([line(ANY_V6, 7)], "127.0.0.1", {7}),
        ([line(MAPPED, 8), line(ANY_V6, 7)], "127.0.0.1", {8}),
        ([line(ANY, 5), line(LOCAL_V6, 7)], "::1", {7}),
        ([line(ANY, 5), line(ANY_V6, 7)], "::1", {7}),
        ([line(EXACT, 5, state="01"), line(EXACT, 6, port="1F91")], "127.0.0.1", set()),
    ],
)
def test_the_most_exact_address_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: list[str], address: str, users: set[int]
) -> None:
    tables = (tmp_path / "tcp", tmp_path / "tcp6", tmp_path / "absent")
    tables[0].write_text(HEAD + "".join(each for each in lines if len(each.split()[1]) < 20))
    tables[1].write_text(HEAD + "".join(each for each in lines if len(each.split()[1]) > 20))
    monkeypatch.setattr(listeners, "_TABLES", tables)
    assert answering_users(ip_address(address), 8080) == users


def test_the_kernels_own_tables_are_read() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert answering_users(ip_address("127.0.0.1"), port) == listening_users(port) == {os.geteuid()}
        assert answering_users(ip_address("127.0.0.2"), port) == set()
    assert listening_users(port) == set()
