"""Exceptions in callbacks of the loop: each is logged and counted, and the loop goes on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import zmq

from protocol.runtime.loop import Loop
from tests.protocol.runtime.run_loop import run_until


def fails() -> None:
    raise RuntimeError("a programming error")


def test_an_exception_in_a_callback_is_logged_with_its_traceback_and_counted(
    loop: Loop, pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]], log_records: list[dict[str, Any]]
) -> None:
    """Sockets, descriptors, processes, signals, timers and the end of an iteration: the loop goes on after each."""
    one, other = pair
    later: list[str] = []

    def read_and_fail() -> None:
        one.recv(zmq.NOBLOCK)
        fails()

    def read_pipe_and_fail() -> None:
        os.read(readable, 1)
        fails()

    readable, writable = os.pipe()
    loop.on_socket(one, read_and_fail)
    loop.on_readable(readable, read_pipe_and_fail)
    child = subprocess.Popen(["true"])
    loop.on_death(child.pid, fails)
    loop.call_later(0.0, fails)
    loop.every(0.01, fails)
    loop.after_each_iteration(lambda: later.append("iteration"))
    other.send(b"x")
    os.write(writable, b"x")
    run_until(loop, lambda: loop.errors >= 6)
    child.wait()
    assert later
    ((event, trace),) = {(record["event"], "a programming error" in record["exception"]) for record in log_records}
    assert (event, trace) == ("a callback raised an exception", True)
    assert len(log_records) < loop.errors, "errors of one line of code are logged once a second"
    for fd in (readable, writable):
        loop.on_readable(fd, None)
        os.close(fd)


def test_a_timer_that_repeats_is_set_again_after_its_callback_raised(loop: Loop) -> None:
    loop.every(0.001, fails)
    run_until(loop, lambda: loop.errors >= 3)


def test_the_process_may_end_itself_when_a_callback_raises(loop: Loop) -> None:
    reported: list[int] = []
    loop.on_error = lambda: reported.append(loop.errors)
    loop.call_later(0.0, fails)
    run_until(loop, lambda: reported)
    assert reported == [1]


def test_a_descriptor_that_cannot_be_watched_leaves_its_number_usable(loop: Loop, tmp_path: Path) -> None:
    called: list[int] = []
    with (tmp_path / "file").open("w") as file:
        number = file.fileno()
        with pytest.raises(PermissionError):  # epoll takes no regular files
            loop.on_readable(number, lambda: None)
    ours, theirs = os.pipe()
    readable = os.dup2(ours, number)
    loop.on_readable(readable, lambda: called.append(os.read(readable, 1)[0]))
    os.write(theirs, b"x")
    loop.run_once(1.0)
    assert called == [ord("x")]
    loop.on_readable(readable, None)
    for fd in {ours, theirs, readable}:
        os.close(fd)
