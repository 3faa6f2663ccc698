"""The run of a server with a cluster is on the disk until it ends in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.runtime import logs
from supervisor.persistence import cluster_run
from supervisor.persistence.cluster_run import ClusterRun
from supervisor.persistence.state_files import finish_write

RUN = ClusterRun("b00t", {"gpu2": "a1"})


def test_a_run_is_read_as_it_was_written_until_it_is_forgotten(tmp_path: Path) -> None:
    assert cluster_run.read(tmp_path) is None
    cluster_run.forget(tmp_path)
    cluster_run.write(tmp_path, ClusterRun("b00t", {}), finish_write)
    cluster_run.write(tmp_path, RUN, finish_write)
    assert cluster_run.read(tmp_path) == RUN
    cluster_run.forget(tmp_path)
    assert cluster_run.read(tmp_path) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"{}", b'{"boot": 1}', b"\xff"])
def test_a_damaged_file_is_reported_and_a_new_run_begins(
    tmp_path: Path, records: list[dict[str, Any]], content: bytes
) -> None:
    logs.configure("supervisor", "info", "json")
    (tmp_path / cluster_run.FILE).write_bytes(content)
    assert cluster_run.read(tmp_path) is None
    assert [record["event"] for record in records] == ["what ran on other nodes is not taken over"]


def test_a_full_disk_ends_no_server(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    logs.configure("supervisor", "info", "json")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cluster_run.write(tmp_path, RUN, full)
    assert [record["reason"] for record in records] == ["No space left on device"]
