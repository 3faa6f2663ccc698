"""A server over several machines knows what its own machine can run, as it knows that of other nodes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from protocol.config.settings import Settings
from protocol.models.nodes import HEAD
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.lifecycle.supervisor import Supervisor
from tests.support.ports import free_port_pair


def test_the_head_has_facts_if_there_may_be_other_nodes() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lb-") as folder:
        runtime = RuntimeDirectory(Path(folder) / "r")
        settings = Settings(
            state_dir=folder,
            cache_dir=folder,
            runtime_dir=str(runtime.path),
            cluster_address=f"127.0.0.1:{free_port_pair()}",
        )
        loop = Loop()
        made = Supervisor(settings, ProcessContext(runtime.path, os.urandom(6).hex(), os.getpid()), loop, -1)
        try:
            facts = made.components.scheduler._state.nodes[HEAD].facts
            assert "cpu" in facts.devices
            assert facts.memory > 0
        finally:
            made.components.state_writer.close()
            made.components.bus.close()
            loop.close()
            runtime.release()
