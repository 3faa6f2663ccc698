"""The soak over several machines: a server with real node agents, and a gateway elsewhere whose link is cut at times."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from protocol.models.nodes import HEAD
from tests.soak import checks, oracle
from tests.soak.agreement import Agreement
from tests.soak.causes import Causes
from tests.soak.clients import soak
from tests.soak.history import Entry, History
from tests.soak.node_faults import Machines, NodeFaults
from tests.soak.overload import Overload
from tests.support.node_agents import NodeUnderTest, boot, membership, wait_joined
from tests.support.ports import free_port_pair
from tests.support.remote_gateway import RemoteGateway, token_of
from tests.support.server import LemonbusServer
from tests.support.tcp_link import TcpLink

MODELS: Final = ("tiny-chat", "tiny-tale", "tiny-loop", "tiny-embed", "tiny-rerank")
EDGE: Final = "edge1"
ADMIN: Final = "administrator"
SILENCE_S: Final = 5.0
CHATS: Final = ("stream", "whole", "hang_up", "slow_reader", "load", "unload", "health")
"""What most clients do. Others ask models that only one node may run, and so wait for it while it is away."""
LENGTHS: Final = (1, 64, 400, 2000, 2000)
"""Tokens of answers. Some take an engine half a second, so that there are always some that a fault can break."""
GRACE_S: Final = 90.0
"""Longer than a link is cut: an agent that waits for so long ends, and nothing here starts it again."""


def sections(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the sections of the models: replicas on several nodes, models of one node each, and one that no node's end may disturb."""
    return {
        "extra.tiny-chat": {"nodes": names, "replicas": 2},
        "extra.tiny-loop": {"nodes": names, "min_replicas": 1, "max_replicas": 2},
        "extra.tiny-tale": {"nodes": [HEAD]},
        oracle.EMBED: {"nodes": names[:1]},
        oracle.RERANK: {"nodes": names[-1:]},
    }


def run(count: int, seconds: float, seed: int, clients: int, history: History, log: Path | None) -> None:
    """Run it for so long; what is wrong is in ``history``. ``log``: a file for what happened."""
    names = [f"gpu{number + 1}" for number in range(count)]
    models = sections(names)
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lb-", dir="/tmp")))
        keys = [ApiKey(name=place, sha256=digest(place), scopes=[Scope.ADMIN]) for place in (HEAD, EDGE)]
        write_keys(state / KEYS_FILE, keys)
        settings: dict[str, Any] = {
            "admin_api_key": ADMIN,
            "state_dir": str(state),
            "cluster_address": f"127.0.0.1:{free_port_pair()}",
            "models": models,
            "slots": 4,
            "ctx_size": 65_536,
            "gateway_workers": 1,
            "peer_silence": SILENCE_S,
            "grace": GRACE_S,
            "breaker_deaths": 10_000,
            "backoff_first": 0.2,
            "backoff_most": 2.0,
            "log_level": "info",
        }
        server = stack.enter_context(LemonbusServer(*MODELS, **settings))
        nodes = {name: _start_node(server, name, stack) for name in names}
        link = stack.enter_context(TcpLink(server.settings.cluster_address))
        gateway = stack.enter_context(RemoteGateway(link.address, token_of(server), EDGE))
        for node, _ in nodes.values():
            wait_joined(server, node)
        entry = Entry(HEAD, server.port, "/v1/chat/completions", HEAD, CHATS, LENGTHS)
        chats = [entry, replace(entry, place=EDGE, port=gateway.port, path="/v1/completions", key=EDGE)]
        bound = [replace(entry, actions=(action,)) for action in ("embed", "rerank")]
        bound += [replace(entry, actions=("stream",), lengths=LENGTHS[-1:], models=(oracle.ENDLESS,))] * 2
        entries = [*(chats[number % 2] for number in range(clients - len(bound))), *bound]
        end = threading.Event()
        agreement = Agreement(server, {name: node for name, (node, _) in nodes.items()})
        faults = NodeFaults(server, Machines(nodes, link, EDGE), agreement, seed, end, history)
        over = threading.Event()
        Overload(over, history).start()
        soak(server, entries, seconds, seed, faults, end, history)
        _check_afterwards(agreement, server, history)
        over.set()
        before_end = len(server.lines)
        try:
            server.stop(60.0)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            history.violate(f"the server does not end: {str(error)[:1000]}")
            server.kill()
        lines = server.lines[:before_end]
        for node, _ in nodes.values():
            try:
                if (status := node.wait_end()) != 0:
                    history.violate(f"the agent of {node.name} has ended with {status}: {node.lines[-3:]}")
                node.assert_nothing_left()
            except (AssertionError, subprocess.TimeoutExpired) as error:
                history.violate(f"{node.name} does not end: {str(error)[:1000]}")
            checks.check_log(node.lines, node.printed, history)
        checks.check_log(lines, server.unread, history)
        places = {model: frozenset(section["nodes"]) for model, section in models.items()}
        for problem in Causes(history.faults, lines, places).problems(history.failed):
            history.violate(problem)
        if log is not None:
            logged = [*server.lines, *(line for node, _ in nodes.values() for line in node.lines)]
            logged += [line for line in gateway.output() if isinstance(line, dict)]
            checks.write_log(log, logged, history)


def _start_node(server: LemonbusServer, name: str, stack: ExitStack) -> tuple[NodeUnderTest, TcpLink]:
    link = stack.enter_context(TcpLink(server.settings.cluster_address))
    found = type(membership(server))(link.address, membership(server).keys)
    return stack.enter_context(NodeUnderTest(name, found, boot(server))), link


def _check_afterwards(agreement: Agreement, server: LemonbusServer, history: History) -> None:
    try:
        checks.wait_idle(server)
        for problem in agreement.counted_wrongly(history):
            history.violate(problem)
        checks.wait_answers(server)
        agreement.wait(checks.SETTLE_S)
    except (AssertionError, OSError) as error:
        history.violate(str(error)[:2000])
