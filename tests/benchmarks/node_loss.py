"""How soon a stream is told that its node was lost: real agents on this machine that are killed or stopped while they serve it."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from tests.benchmarks.measuring import Spread, spread
from tests.support import processes
from tests.support.node_agents import node_of, wait_joined
from tests.support.ports import free_port_pair
from tests.support.server import LemonbusServer

MODEL: Final = "extra.tiny-loop"
_TOKENS: Final = 60_000
"""More than a round lasts."""
_ENDS: Final = ("its agent is killed", "its agent is stopped", "its agent and the supervisor are killed")


class NodeLossTimes(msgspec.Struct):
    """One way in which a node is lost. ``seconds``: until the error of its stream, over the rounds."""

    end: str
    seconds: Spread
    others: list[str]
    """The errors that were not ``node_lost``."""

    def row(self) -> tuple[str, ...]:
        """Return the line of the table."""
        each = self.seconds
        return self.end, f"{each.median:.2f} ({each.least:.2f} to {each.most:.2f})", ", ".join(self.others) or "none"


def measure(rounds: int) -> list[NodeLossTimes]:
    """Lose the only node of a model in each way, in turn."""
    delays: dict[str, list[float]] = {end: [] for end in _ENDS}
    others: dict[str, list[str]] = {end: [] for end in _ENDS}
    server = LemonbusServer(
        "tiny-loop",
        log_level="info",
        gateway_workers=1,
        ctx_size=65_536,
        breaker_deaths=10_000,
        cluster_address=f"127.0.0.1:{free_port_pair()}",
        models={MODEL: {"nodes": ["gpu1"]}},
    )
    with server, node_of(server, "gpu1") as node:
        for end in _ENDS * rounds:
            if node.process.poll() is not None:
                node.start_again()
            wait_joined(server, node)
            stream = server.client.start_chat(MODEL, stream=True, max_tokens=_TOKENS)
            stream.until(lambda it: len(it.events) > 2)
            began = time.perf_counter()
            if end == _ENDS[1]:
                with processes.stopped(node.pid):
                    stream.finish()
            else:
                if end == _ENDS[2]:
                    processes.kill(server.supervisor_pid)
                processes.kill(node.pid)
                stream.finish()
            delays[end].append(time.perf_counter() - began)
            if stream.error["code"] != "node_lost":
                others[end].append(stream.error["code"])
            if end != _ENDS[1]:
                node.process.wait()
    return [NodeLossTimes(end, spread(delays[end]), others[end]) for end in _ENDS]
