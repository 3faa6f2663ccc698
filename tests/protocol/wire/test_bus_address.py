"""The addresses of a server's sockets on one node and on several, and the files that say them."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.config.cluster_keys import CLUSTER_KEYS_FILE, ensure_cluster_keys, read_cluster_keys
from protocol.config.fields import setting_fields
from protocol.failures import LemonbusError
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints
from protocol.wire.bus_address import (
    MEMBERSHIP_FILE,
    BusAddress,
    ClusterMembership,
    port_range,
    split_address,
    write_membership,
)
from protocol.wire.curve import new_cluster_keys

KEYS = new_cluster_keys().of_member()


def test_a_server_without_a_cluster_has_only_ipc(tmp_path: Path) -> None:
    context = ProcessContext(tmp_path, "boot", 1)
    assert context.bus == BusAddress(tmp_path)
    assert context.bus.control == endpoints.bus(tmp_path)
    assert context.bus.logs("boot") == endpoints.logs(tmp_path, "boot")
    assert "LEMONBUS_NODE" not in context.environment()


@pytest.mark.parametrize(
    ("address", "control", "logs"),
    [
        ("10.0.0.1:7000", "tcp://10.0.0.1:7000", "tcp://10.0.0.1:7001"),
        ("[fd00::1]:7000", "tcp://[fd00::1]:7000", "tcp://[fd00::1]:7001"),
        ("head.example.org:7000", "tcp://head.example.org:7000", "tcp://head.example.org:7001"),
    ],
)
def test_other_nodes_reach_the_supervisor_through_tcp_and_the_head_through_ipc(
    tmp_path: Path, address: str, control: str, logs: str
) -> None:
    write_membership(tmp_path, ClusterMembership(address, KEYS))
    head, other = ProcessContext(tmp_path, "boot", 1), ProcessContext(tmp_path, "boot", 1, "gpu2")
    assert (head.bus.control, head.bus.logs("boot")) == (endpoints.bus(tmp_path), endpoints.logs(tmp_path, "boot"))
    assert (other.bus.control, other.bus.logs("boot")) == (control, logs)
    assert other.environment()["LEMONBUS_NODE"] == "gpu2"
    assert head.bus.cluster == other.bus.cluster == ClusterMembership(address, KEYS)
    write_membership(tmp_path, None)
    assert head.bus.cluster is None


def test_a_node_listens_at_the_address_from_which_it_reaches_the_head(tmp_path: Path) -> None:
    found = BusAddress(tmp_path, ClusterMembership("127.0.0.1:7000", KEYS)).listening_host()
    assert found == "127.0.0.1"
    assert BusAddress(tmp_path, ClusterMembership("127.0.0.1:7000", KEYS, "10.0.0.7")).listening_host() == "10.0.0.7"


def test_the_files_with_keys_are_private_and_the_keys_are_made_once(tmp_path: Path) -> None:
    write_membership(tmp_path, ClusterMembership("127.0.0.1:7000", KEYS))
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: ensure_cluster_keys(tmp_path / "state"), range(4)))
    assert made == [read_cluster_keys(tmp_path / "state")] * 4
    for file in (tmp_path / MEMBERSHIP_FILE, tmp_path / "state" / CLUSTER_KEYS_FILE):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [file.name for file in (tmp_path / "state").iterdir()] == [CLUSTER_KEYS_FILE]


def test_a_broken_file_of_keys_is_refused_and_stays(tmp_path: Path) -> None:
    file = tmp_path / CLUSTER_KEYS_FILE
    file.write_text('{"supervisor": 1}')
    with pytest.raises(LemonbusError, match=CLUSTER_KEYS_FILE.replace(".", r"\.")):
        ensure_cluster_keys(tmp_path)
    assert file.read_text() == '{"supervisor": 1}'


@pytest.mark.parametrize(
    "text", ["7000", ":7000", "host:", "host:0", "host:65535", "fd00::1:7000", "[10.0.0.1]:7000", "host:7x", "host:٣"]
)
def test_an_address_without_a_host_or_a_usable_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        split_address(text)
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        setting_fields()["cluster_address"].parse_text(text)


@pytest.mark.parametrize("text", ["0.0.0.0:7000", "[::]:7000", "no host:7000"])
def test_the_setting_refuses_hosts_that_other_machines_cannot_reach(text: str) -> None:
    with pytest.raises(ValueError, match="other machines"):
        setting_fields()["cluster_address"].parse_text(text)


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("", range(0)),
        ("20000-20099", range(20_000, 20_100)),
        ("1024-1024", range(1024, 1025)),
        ("65535-65535", range(65_535, 65_536)),
    ],
)
def test_a_range_of_ports(text: str, ports: range) -> None:
    assert port_range(text) == ports
    assert setting_fields()["worker_ports"].checked(text) == text


@pytest.mark.parametrize(
    "text",
    ["20000", "20000-", "-20000", "1023-2000", "20000-65536", "20001-20000", "a-b", "²-³", "1-2-3", " 20000-20001"],
)
def test_another_text_than_a_range_of_ports_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"FIRST-LAST|two ports"):
        setting_fields()["worker_ports"].checked(text)
