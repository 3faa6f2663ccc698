"""Log lines that go to the journal of a service have their priority."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from protocol.runtime import logs
from protocol.runtime.log_output import MAX_LINE_BYTES, DropCounter


def journal_lines(script: str, style: str = "json", *, redirected: bool = False) -> list[bytes]:
    """Return the lines that a service writes to its journal stream, or to another stderr although it has one."""
    stream, other = socket.socketpair(), socket.socketpair()
    with contextlib.ExitStack() as stack:
        for each in (*stream, *other):
            stack.enter_context(each)
        status = os.fstat(stream[1].fileno())
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"from protocol.runtime import logs\nlogs.configure('p', 'trace', {style!r})\n{script}",
            ],
            cwd=Path(logs.__file__).parents[2],
            env={**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"},
            stderr=(other if redirected else stream)[1],
            timeout=20,
            check=False,
        )
        return (other if redirected else stream)[0].recv(65_536).splitlines()


def test_lines_to_the_journal_have_their_priority() -> None:
    levels = list(logs.LEVEL_RANK)
    lines = journal_lines(f"for level in {levels}: getattr(logs.get_logger(), level)('said')")
    assert [line[:3] for line in lines] == [b"<7>", b"<7>", b"<6>", b"<4>", b"<3>", b"<2>"]
    assert [json.loads(line[3:])["level"] for line in lines] == levels


def test_each_line_of_records_that_are_written_together_has_its_priority() -> None:
    lines = journal_lines(
        "logs.set_batching(lambda flush: None)\n"
        "for level in ('info', 'error'): logs.log_batched(level, 'x' * 4000, {})\n"
        "for level in ('info', 'error'): logs.log_batched(level, 'y', {})\n"
        "logs.flush()"
    )
    assert [line[:3] for line in lines] == [b"<6>", b"<3>", b"<6>", b"<3>"]
    assert all(len(line) < MAX_LINE_BYTES and json.loads(line[3:]) for line in lines)


def test_a_line_for_people_has_it_on_each_of_its_lines() -> None:
    lines = journal_lines("logs.get_logger().error('failed', exc_info=ValueError('x'))", "console")
    assert len(lines) > 1
    assert all(line.startswith(b"<3>") for line in lines)


def test_a_redirected_stderr_is_not_the_journal() -> None:
    (line,) = journal_lines("logs.get_logger().error('said')", redirected=True)
    assert json.loads(line)["event"] == "said"


def test_the_count_of_dropped_records_is_behind_the_priority() -> None:
    sent: list[bytes] = []
    counter = DropCounter(lambda line: sent.append(line) or len(sent) > 1)  # type: ignore[func-returns-value]
    counter(b'<6>{"a":1}')
    counter(b'<6>{"a":2}')
    assert sent[1] == b'<6>{"dropped":1,"a":2}'
