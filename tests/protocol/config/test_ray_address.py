"""Where the Ray cluster is, and at which address its nodes reach this server, without asking Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.config.ray_address import CLUSTER_PORT, find_gcs, with_cluster_address
from protocol.config.settings import Settings
from protocol.failures import LemonbusError


def settings(**given: Any) -> Settings:
    return Settings(placement="ray", **given)


def joined(folder: Path, content: str = "10.1.2.3:6379\n") -> dict[str, str]:
    """Return the environment of a machine where `ray start` has left its file."""
    (folder / "ray").mkdir()
    (folder / "ray" / "ray_current_cluster").write_text(content)
    return {"TMPDIR": str(folder)}


def test_the_setting_the_variable_and_the_file_in_this_order(tmp_path: Path) -> None:
    environment = joined(tmp_path)
    assert find_gcs(settings(), environment) == "10.1.2.3:6379"
    assert find_gcs(settings(), {"RAY_TMPDIR": str(tmp_path), "TMPDIR": "/nowhere"}) == "10.1.2.3:6379"
    environment["RAY_ADDRESS"] = "ray-head:6379"
    assert find_gcs(settings(), environment) == "ray-head:6379"
    assert find_gcs(settings(ray_address="10.0.0.9:1234"), environment) == "10.0.0.9:1234"


@pytest.mark.parametrize(
    ("address", "environment", "expected"),
    [
        ("auto", {"TMPDIR": "/nowhere"}, "this machine belongs to no Ray cluster"),
        ("auto", {"RAY_ADDRESS": "ray://head:10001"}, "RAY_ADDRESS: expected HOST:PORT"),
        ("head", {}, "ray_address: expected HOST:PORT of the Ray cluster's head, got 'head'"),
    ],
)
def test_no_address_is_refused_with_what_to_do(address: str, environment: dict[str, str], expected: str) -> None:
    with pytest.raises(LemonbusError, match=expected) as raised:
        with_cluster_address(settings(ray_address=address), environment)
    assert raised.value.failure.param == "ray_address"


def test_a_file_with_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LemonbusError, match="ray_current_cluster: expected HOST:PORT"):
        find_gcs(settings(), joined(tmp_path, "\0"))


def test_the_address_that_reaches_the_head_of_the_cluster_is_the_servers(tmp_path: Path) -> None:
    found = with_cluster_address(settings(ray_address="127.0.0.1:6379"), {})
    assert found.cluster_address == f"127.0.0.1:{CLUSTER_PORT}"
    assert with_cluster_address(settings(ray_address="[::1]:6379"), {}).cluster_address == f"[::1]:{CLUSTER_PORT}"
    with pytest.raises(LemonbusError, match="cluster_address: this machine does not reach") as raised:
        with_cluster_address(settings(ray_address="no-such-host.invalid:6379"), {})
    assert raised.value.failure.param == "cluster_address"


def test_what_is_set_is_left_alone() -> None:
    given = settings(cluster_address="10.0.0.1:7000")
    assert with_cluster_address(given, {}) is given
    local = Settings(ray_address="nonsense")
    assert with_cluster_address(local, {}) is local
