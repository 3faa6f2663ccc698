"""The fork server: has imported all of the supervisor's modules, and forks a supervisor when the keeper says so.

It opens no socket of ZeroMQ, starts no thread and has no loop: what is forked must be whole.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from protocol.runtime import memory
from supervisor.keeper import channel, process_tree
from supervisor.keeper.channel import Channel, ClosedError
from supervisor.lifecycle import server
from supervisor.lifecycle.keeper_client import KeeperClient


def run(keeper: Channel) -> None:
    """Fork supervisors until the keeper closes the channel."""
    process_tree.set_name("lemonbus-fork")
    # What is sent to a whole control group is the keeper's to answer.
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    memory.tune_gc()
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"a module has started {threads - 1} threads: they would be missing in a forked process")
    keeper.send(channel.PREPARED)
    try:
        while received := keeper.receive(timeout=None):
            word, _, descriptor = received
            if word == channel.START and descriptor >= 0:
                _fork(keeper, descriptor)
    except ClosedError:
        return


def _fork(keeper: Channel, descriptor: int) -> None:
    """Start a supervisor that becomes a child of the keeper: its parent, forked in between, ends at once."""
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            keeper.close()
            _become_supervisor(descriptor)
        os._exit(0)
    os.close(descriptor)
    os.waitpid(between, 0)


def _become_supervisor(descriptor: int) -> NoReturn:
    process_tree.set_name("lemonbus-superv")
    os.setsid()  # it outlives the group of the fork server
    code = 1
    try:
        client = KeeperClient(Channel(socket.socket(fileno=descriptor)))
        try:
            code = server.run(client)
        except Exception as problem:
            client.last_words(f"{type(problem).__name__}: {problem}")
            raise
    except ClosedError:
        pass  # there is no keeper to serve
    except Exception:  # noqa: BLE001 - this stack is not the fork server's: nothing below may run
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
