"""A server on one machine has nothing of a cluster."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import StartServer
from tests.support.cluster_modules import of_cluster


def test_nothing_of_a_cluster_is_imported_even_if_ray_is_installed(
    start_server: StartServer, stand_in_ray: Path
) -> None:
    environment = {"PYTHONPATH": str(stand_in_ray), "PYTHONPROFILEIMPORTTIME": "1"}
    server = start_server("tiny-chat", environment=environment)
    assert server.client.post("/v1/load", {"model_name": "extra.tiny-chat"}).status == 200
    assert server.client.get("/v1/health").status == 200
    assert not (stand_in_ray / "imported").exists()
    imported = re.findall(r"^import time:.*\| +([\w.]+)$", "".join(server.unread), re.MULTILINE)
    assert "supervisor.bus.sockets" in imported, "the log says what was imported"
    assert not of_cluster(imported)
    assert not any(process.runs("workers.jobs.ray_cluster") for process in server.process_tree())
    assert not (server.home / "state" / "cluster_keys.json").exists()
