"""The Ray actor that starts our node agent on its node, and ends with it. The class is sent to the node as code.

So it only uses the standard library, and at run time the package ``lemonbus`` that is installed on the node. The kernel
tells the agent to end (SIGHUP) when the actor ends, however that happens.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

AGENT_MODULE = "supervisor.node_agent"
AGENT_FILE_VARIABLE = "LEMONBUS_AGENT_FILE"
UNUSED_S = 30.0
"""An actor that is not used for this long after its start ends: its driver has ended meanwhile."""
LAST_ANSWER_S = 2.0
"""How long an actor whose agent has ended waits for a driver that asks why."""
REFUSED = 3
"""The exit code of an agent that the server cannot use: see ``supervisor/node_agent/agent.py``."""
_BOUND_TO_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGHUP), 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-m", sys.argv[2]])
"""
"""PR_SET_PDEATHSIG holds across exec. Between fork and exec, a process with many threads could not set it safely."""


class AgentActor:
    """One node's actor. Its methods may be called from several drivers, one after the other, and at the same time."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._agent: subprocess.Popen[bytes] | None = None
        self._problem = ""
        self._drains = False
        self._started, self._ended = threading.Event(), threading.Event()
        threading.Timer(UNUSED_S, self._end_if_unused).start()

    def start(self, order: str, module: str = AGENT_MODULE) -> str:
        """Start the agent with this order, unless it runs; return why it cannot be started, empty if it runs."""
        with self._lock:
            if not self._started.is_set():
                # The kernel takes the end of this thread for that of the parent, so it is the one that stays.
                threading.Thread(target=self._run, args=(order, module), name="agent", daemon=True).start()
                self._started.wait()
        return self._problem

    def wait(self, seconds: float) -> str:
        """Return why the agent has ended, or empty after this many seconds in which it has not."""
        return self._problem if self._ended.wait(seconds) else ""

    def drain(self) -> None:
        """Tell the agent to end once its streams have ended. A second driver may ask for it again."""
        with self._lock:
            if self._agent is not None and not self._drains:
                self._drains = True
                self._agent.terminate()

    def _run(self, order: str, module: str) -> None:
        try:
            self._agent = start_agent(order, module)
        except (ImportError, OSError) as problem:
            self._problem = explained(problem)
            self._started.set()
        else:
            self._started.set()
            code = self._agent.wait()
            self._problem = f"its agent {how_ended(code)}"
        self._ended.set()
        threading.Event().wait(LAST_ANSWER_S)
        os._exit(0)

    def _end_if_unused(self) -> None:
        if not self._started.is_set():
            os._exit(0)


def start_agent(order: str, module: str) -> subprocess.Popen[bytes]:
    """Start the agent of the installed lemonbus; raises ImportError or OSError."""
    lemonbus = importlib.import_module("lemonbus")  # that of the node, which may have none
    environment = agent_environment(os.environ)
    packages = [str(lemonbus.PACKAGES_DIR), environment.get("PYTHONPATH", "")]
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, packages)), "PYTHONSAFEPATH": "1"}
    # Memory, not a file: it holds keys, and disappears with the agent.
    file = os.memfd_create("lemonbus-agent")
    try:
        os.fchmod(file, 0o600)
        os.write(file, completed(order, environment).encode())
        environment[AGENT_FILE_VARIABLE] = f"/proc/self/fd/{file}"
        return subprocess.Popen(
            [sys.executable, "-c", _BOUND_TO_PARENT, str(os.getpid()), module],
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            pass_fds=[file],
            start_new_session=True,
        )
    finally:
        os.close(file)


def completed(order: str, environment: Mapping[str, str]) -> str:
    """Return the settings of the agent with the directories of this node: those of its own variables, or the usual ones."""
    settings = json.loads(order)
    server = settings.pop("server")
    home = Path(environment.get("HOME") or Path.home())
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "lemonbus"
    runtime = Path(environment.get("XDG_RUNTIME_DIR") or "/tmp")  # noqa: S108 - the agent makes a private folder there
    cache_dir = environment.get("LEMONBUS_CACHE_DIR") or str(cache)
    directories = {
        "runtime_dir": str(runtime / f"lemonbus-{os.geteuid()}-{server}"),
        "cache_dir": cache_dir,
        "state_dir": str(Path(cache_dir) / f"node-{server}"),
        "machine_dir": environment.get("LEMONBUS_MACHINE_DIR") or "/",
    }
    return json.dumps(settings | directories)


def agent_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Ray's node was started with, and the devices that Ray has given to this actor.

    Ray adds others for its own processes: ``OMP_NUM_THREADS=1`` would make every engine slow.
    """
    try:
        block = Path("/proc", own.get("RAY_RAYLET_PID", "none"), "environ").read_bytes()
    except OSError:
        block = b""
    pairs = (os.fsdecode(each).partition("=") for each in block.split(b"\0") if each)
    environment = {name: value for name, _, value in pairs} or {
        name: value for name, value in own.items() if name != "OMP_NUM_THREADS"
    }
    devices = {name: own[name] for name in own if "VISIBLE" in name or name == "ONEAPI_DEVICE_SELECTOR"}
    return {**environment, **devices}


def how_ended(code: int) -> str:
    """Return how an agent has ended that gave this exit code, as the end of a clause."""
    if code == REFUSED:
        return "was refused by the server, whose log says why"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def explained(problem: Exception) -> str:
    """Return why the agent cannot be started, as a clause."""
    if isinstance(problem, ImportError):
        return f"lemonbus is not installed in Ray's Python there, {sys.executable}: pip install 'lemonbus[ray]'"
    return f"its agent cannot be started: {problem}"
