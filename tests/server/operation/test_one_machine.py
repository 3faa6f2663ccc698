"""A server on one machine has nothing of a cluster."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import StartServer


def test_nothing_of_ray_is_imported_even_if_it_is_installed(start_server: StartServer, stand_in_ray: Path) -> None:
    server = start_server("tiny-chat", environment={"PYTHONPATH": str(stand_in_ray)})
    assert server.client.post("/v1/load", {"model_name": "extra.tiny-chat"}).status == 200
    assert not (stand_in_ray / "imported").exists()
    assert not any(process.runs("workers.jobs.ray_cluster") for process in server.process_tree())
    assert not (server.home / "state" / "cluster_keys.json").exists()
