"""One machine is assumed in few places: which code may know pids, addresses of sockets, and files of the runtime directory."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.source_code import FILES, name

ADDRESSES = {
    "events": ("workers/worker/bus.py",),
    "bus": (
        "protocol/wire/bus_connection.py",
        "protocol/wire/bus_address.py",
        "supervisor/",
    ),
    "logs": ("supervisor/", "protocol/wire/bus_address.py"),
}
"""Function that names a socket's address → who may call it: who binds the socket, and for the supervisor's also who connects to it.

A worker's address is decided by the worker. Others use the one in its Hello.
"""

PIDS = {
    r"os\.(kill|killpg|getsid|waitpid|waitid|pidfd_open)\(|pidfd_send_signal|SO_PEERCRED|/proc/\{": (
        "protocol/runtime/",
        "protocol/wire/bus_connection.py",
        "supervisor/processes/",
        "supervisor/keeper/",
        "supervisor/lifecycle/",
        "workers/engine/",
        "workers/engine_servers/",
        "gateway/process_watch.py",
        "gateway/decoding/decoder_process.py",
        "gateway/server/",
    ),
    r"\.on_death\(|\.forget_death\(": (
        "protocol/runtime/loop.py",
        "supervisor/processes/",
        "workers/worker/supervisor_link.py",
        "workers/engine/",
    ),
    r"\bprocess_tree\b|\bpsutil\.(Process|process_iter)\b|\bchild_processes\b": (
        "supervisor/processes/",
        "supervisor/keeper/",
        "supervisor/lifecycle/",
        "supervisor/gateway_host/",
        "supervisor/reload/reloader.py",
    ),
    r"\bsocket_file\(": (
        "protocol/wire/",
        "supervisor/processes/",
        "supervisor/bus/sockets.py",
        "supervisor/lifecycle/runtime_directory_watch.py",
    ),
    r"\b(keeper_children|KeeperChild|local_placement|LocalPlacement|stale_files|engine_groups|abandoned_processes)\b": (
        "supervisor/processes/",
        "supervisor/lifecycle/",
        "supervisor/node_agent/",
        "workers/engine/engine_group.py",
    ),
    r"\b(started_by|used_by)\(": (
        "supervisor/processes/",
        "supervisor/machine/device_readings.py",
        "supervisor/machine/held_memory.py",
        "supervisor/node_agent/node_processes.py",
        "supervisor/nodes/cluster_placement.py",
        "supervisor/nodes/node_devices.py",
    ),
    r"\bendpoints\.(spool|lock_file)\(|\bRuntimeDirectory\b": (
        "protocol/wire/",
        "supervisor/processes/stale_files.py",
        "supervisor/lifecycle/",
        "supervisor/node_agent/",
        "gateway/server/gunicorn_master.py",
        "workers/requests/attempt.py",
    ),
}
"""What finds, watches or ends a process by its pid, or a file in the runtime directory → who may use it.

In the supervisor that is its placement (``supervisor/processes/placement.py``) and what is above it, the keeper and the
life of the supervisor itself. All others know a process by its id on the bus.
"""

SHOWN_PIDS = (
    "supervisor/node_agent/",
    "supervisor/nodes/cluster_placement.py",
    "supervisor/nodes/node_placement.py",
    "supervisor/processes/",
    "supervisor/keeper/",
    "supervisor/lifecycle/",
    "supervisor/handlers/metrics.py",
    "supervisor/handlers/overview.py",
    "supervisor/handlers/replica_reports.py",
    "supervisor/handlers/server_state.py",
    "supervisor/overview/report.py",
    "supervisor/peers/peer_exit.py",
    "supervisor/peers/handshake.py",
    "supervisor/peers/monitor.py",
    "supervisor/recovery/takeover.py",
    "supervisor/scheduler/worker_events.py",
)
"""Who may read a pid in the supervisor. Those outside its placement only show what the process itself has reported."""

OWN_PID = {
    "supervisor/gateway_host/__main__.py": "in the name of the lock",
    "supervisor/gateway_host/host.py": "the keeper of its gateways",
    "supervisor/handlers/metrics.py": "its resident memory",
    "supervisor/handlers/overview.py": "shown",
    "supervisor/handlers/server_state.py": "shown",
    "supervisor/handlers/upgrade.py": "shown",
    "supervisor/peers/handshake.py": "in Welcome, for the processes of this machine",
    "supervisor/persistence/state_files.py": "in the name of a draft",
}
"""Who reads the supervisor's own pid, outside its placement and what is above that → for what."""


@pytest.mark.parametrize("function", ADDRESSES)
def test_the_process_that_binds_a_socket_decides_its_address(function: str) -> None:
    used = [path for path in FILES if re.search(rf"\bendpoints\.{function}\(", path.read_text())]
    assert used
    assert not [name(path) for path in used if not name(path).startswith(ADDRESSES[function])]


@pytest.mark.parametrize("pattern", PIDS)
def test_only_the_placement_knows_what_a_pid_or_a_file_of_the_runtime_directory_means(pattern: str) -> None:
    used = [name(path) for path in FILES if re.search(pattern, path.read_text())]
    assert [path for path in used if not path.startswith(PIDS[pattern])] == []
    assert [allowed for allowed in PIDS[pattern] if not any(path.startswith(allowed) for path in used)] == []


def test_handlers_and_recovery_only_show_pids() -> None:
    used = {
        name(path)
        for path in FILES
        if name(path).startswith("supervisor/")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("pid", "_pid", "engine_pid", "pidfd")
    }
    assert [path for path in sorted(used) if not path.startswith(SHOWN_PIDS)] == []
    assert {path for path in SHOWN_PIDS if path.endswith(".py")} <= used


def test_the_supervisors_own_pid_is_read_only_to_be_shown() -> None:
    above = ("supervisor/processes/", "supervisor/keeper/", "supervisor/lifecycle/", "supervisor/node_agent/")
    used = {name(path) for path in FILES if name(path).startswith("supervisor/") and "os.getpid()" in path.read_text()}
    assert {path for path in used if not path.startswith(above)} == OWN_PID.keys()
