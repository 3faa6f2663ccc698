"""What /proc says about the processes of one server: command lines, parents, states, memory."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import wait_for

_RUNS_S, _RESTS_S = 0.005, 0.095
"""For how long a slow process runs, and then does not."""
ENGINE_KEYS = ("LLAMA_API_KEY", "KOKORO_API_KEY", "OGA_API_KEY", "SD_SERVER_API_KEY", "WHISPER_API_KEY")
"""Environment variables that tell engines the bearer token that they must demand."""


@dataclass(frozen=True)
class ProcessInfo:
    """One living process."""

    pid: int
    parent: int
    state: str = field(compare=False)
    """A letter of ``ps``: ``R``, ``S``, ``T`` (stopped), ``Z`` …"""
    words: tuple[str, ...]
    """Its command line."""

    def runs(self, module: str) -> bool:
        """Whether it was started as ``python -m MODULE``."""
        return any(pair == ("-m", module) for pair in zip(self.words, self.words[1:], strict=False))

    def option(self, name: str) -> str:
        """The word after ``name`` in the command line; empty if there is none."""
        return next((after for word, after in zip(self.words, self.words[1:], strict=False) if word == name), "")

    def mentions(self, text: str) -> bool:
        return any(text in word for word in self.words)


def look(pid: int) -> ProcessInfo | None:
    """Return the process, or None if it is gone; a zombie is gone."""
    try:
        stat = _read(pid, "stat")
        words = _read(pid, "cmdline").rstrip(b"\0").split(b"\0")
    except OSError:
        return None
    state, parent = stat.rpartition(b")")[2].decode().split()[:2]
    return None if state in "ZX" else ProcessInfo(pid, int(parent), state, tuple(word.decode() for word in words))


def _read(pid: int, file: str) -> bytes:
    """Return the content of a file of a process. It avoids ``pathlib``, because waiting tests look at all processes of

    the machine twenty times a second.
    """
    descriptor = os.open(f"/proc/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while piece := os.read(descriptor, 1 << 16):
            data += piece
        return data
    finally:
        os.close(descriptor)


def name(pid: int) -> str:
    """Return the name that a process has given itself, of at most 15 characters; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


def alive(pid: int) -> bool:
    return look(pid) is not None


def is_asleep(pid: int) -> bool:
    """Return whether the main thread of a process waits for something."""
    found = look(pid)
    return found is not None and found.state == "S"


_foreign: dict[tuple[bytes, int], float] = {}
"""Runtime directory and pid → the time until which the process counts as another server's without a look at its environment."""
_FOREIGN_S = 10.0
"""How long such a result is valid: a pid is not used again so soon."""
_SETTLED_S = 5.0
"""Seconds after its start by which a process has been forked and has executed its program, so that its environment no longer changes."""


def of_server(runtime: Path) -> list[ProcessInfo]:
    """Return every process that has the runtime directory in its environment.

    The children run in sessions of their own, so neither the process group nor the parent identifies them.
    """
    mark = os.fsencode(runtime)
    found = []
    now = time.monotonic()
    for pid in _all_pids():
        if _foreign.get((mark, pid), 0.0) > now:
            continue
        try:
            ours = mark in _read(pid, "environ")
            if not ours and _age(pid) > _SETTLED_S:
                _foreign[mark, pid] = now + _FOREIGN_S
        except OSError:  # a thread of the kernel, a zombie, or a process that has just ended
            _foreign[mark, pid] = now + _FOREIGN_S
            continue
        process = look(pid) if ours else None
        if process is not None:
            found.append(process)
    return found


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - see _read


def _age(pid: int) -> float:
    """Return for how many seconds a process has been running."""
    ticks = int(_read(pid, "stat").rpartition(b")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def with_word(word: str) -> list[ProcessInfo]:
    """Return every living process that has this word in its command line."""
    found = (look(pid) for pid in _all_pids())
    return [process for process in found if process is not None and word in process.words]


def children(pid: int) -> list[ProcessInfo]:
    """Return the living children of a process."""
    pids: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has ended meanwhile
                pids += (task / "children").read_text().split()
    return [process for process in (look(int(child)) for child in pids) if process is not None]


def environment(pid: int) -> dict[str, str]:
    """Return the environment of a process that executes its program, waited for: a moment after its start, it is empty."""
    text = wait_for(lambda: Path(f"/proc/{pid}/environ").read_bytes(), f"process {pid} has its environment")
    entries = (entry.partition("=") for entry in os.fsdecode(text).split("\0"))
    return {name: value for name, _, value in entries}


def engine_key(pid: int) -> str:
    """Return the bearer token that an engine demands, from its environment; empty if it has none."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except OSError:
        return ""
    return next((value for name, _, value in (entry.partition("=") for entry in entries) if name in ENGINE_KEYS), "")


def kill(pid: int) -> None:
    assert pid > 0, "no process: 0 would be all processes of the test"
    os.kill(pid, signal.SIGKILL)


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process have stopped: each stops by itself, a moment after the signal."""
    try:
        states = [file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return not alive(pid)
    return all(state in "TtZX" for state in states)


def stop(pid: int) -> None:
    """SIGSTOP a process, and wait until it does nothing any more, or is gone: on a busy machine, its threads go on for a while."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: _is_stopped(pid), "all of its threads are stopped")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP the process during the block; then SIGCONT, if it still exists."""
    try:
        stop(pid)
        yield
    finally:
        # The process may be killed and reaped between the two.
        with contextlib.suppress(ProcessLookupError):
            if alive(pid):
                os.kill(pid, signal.SIGCONT)


@contextmanager
def slowed(*pids: int) -> Iterator[None]:
    """Let processes run for a twentieth of the time during the block. They may end meanwhile; their pids are not used again."""
    over = threading.Event()
    files = [os.pidfd_open(pid) for pid in pids]

    def send(number: int) -> None:
        for file in files:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(file, number)

    def pulse() -> None:
        while not over.wait(_RUNS_S):
            send(signal.SIGSTOP)
            over.wait(_RESTS_S)
            send(signal.SIGCONT)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        send(signal.SIGCONT)
        for file in files:
            os.close(file)


def memory(pid: int) -> int:
    """Return the process's PSS in bytes: its own pages, and its share of the shared ones."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used, including threads that have ended."""
    user, system = _read(pid, "stat").rsplit(b")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
