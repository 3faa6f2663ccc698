"""``python -m supervisor.node_agent``: the agent of a node. ``protocol/config/agent_settings.py`` says how it is started."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from protocol.config.agent_settings import AGENT_FILE_VARIABLE, AgentSettings, read_agent_settings
from protocol.failures import LemonbusError
from protocol.runtime import descriptors, logs, memory
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.bus_address import BusAddress, write_membership
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.node_agent.agent import EXIT_REFUSED, NodeAgent
from supervisor.processes import abandoned_processes

EXIT_FAILED = 1
EXIT_USAGE = 2
"""For errors that the next start would also have."""
_ENDING = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Run the agent until it is told to end, or no supervisor is left; return the exit code."""
    path = os.environ.pop(AGENT_FILE_VARIABLE, "")
    if not path:
        return _refused(f"{AGENT_FILE_VARIABLE} must name the file of the agent's settings", EXIT_USAGE)
    try:
        settings = read_agent_settings(Path(path))
    except (LemonbusError, OSError) as problem:
        return _refused(str(problem), EXIT_USAGE)
    logs.configure("agent", "info", node=settings.node)
    descriptors.raise_limit()
    try:
        for folder in (settings.cache_dir, settings.state_dir):
            Path(folder).mkdir(parents=True, exist_ok=True)
        runtime = RuntimeDirectory(Path(settings.runtime_dir))
        write_membership(runtime.path, settings.membership)
        return _run(settings, runtime)
    except (LemonbusError, OSError) as problem:
        return _refused(str(problem), EXIT_FAILED)


def _refused(why: str, code: int) -> int:
    os.write(2, f"lemonbus: node agent: {why}\n".encode())
    return code


def _run(settings: AgentSettings, runtime: RuntimeDirectory) -> int:
    context = ProcessContext(runtime.path, settings.boot, os.getpid(), settings.node)
    abandoned_processes.kill_left_behind(context)
    loop = Loop()
    address = BusAddress(runtime.path, settings.membership, remote=True)
    agent = NodeAgent(settings, loop, runtime, context=context, address=address)
    logs.set_sink(agent.log)
    for number in _ENDING:
        loop.on_signal(number, agent.drain)
    # The actor of Ray that has started it has ended, maybe after it has told the agent the same: streams go on.
    loop.on_signal(signal.SIGHUP, agent.begin_drain)
    agent.begin()
    memory.tune_gc()
    loop.run()
    for number in (*_ENDING, signal.SIGHUP):  # one that comes now would change the exit code
        signal.signal(number, signal.SIG_IGN)
    logs.set_sink(None)
    agent.close()
    runtime.release()
    return _refused(agent.reason, EXIT_REFUSED) if agent.exit_code == EXIT_REFUSED else agent.exit_code


if __name__ == "__main__":
    sys.exit(main())
