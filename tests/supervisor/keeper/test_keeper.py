"""The keeper as a process: supervisors that die, are stopped, end well or badly; its signals, its children, its size."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisor.keeper import channel
from supervisor.keeper.fork_server_process import SERVE_PAUSE_S
from tests.supervisor.keeper.keeper_process import ROOT, KeeperProcess
from tests.support import processes
from tests.support.waiting import pause, wait_for

MAX_PSS = 8 * 2**20
SILENCE_S = 1.5
StartKeeper = Callable[..., KeeperProcess]


@pytest.fixture
def start_keeper() -> Iterator[StartKeeper]:
    with ExitStack() as stack:
        yield lambda *behaviours, **more: stack.enter_context(KeeperProcess(*behaviours, **more))


def test_a_supervisor_that_dies_is_replaced_and_the_next_is_told_why(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("serve")
    first = keeper.wait_started(0)
    os.kill(first, signal.SIGKILL)
    second = keeper.wait_started(1)
    assert second != first
    assert "SIGKILL" in keeper.wait_line("started 1")
    keeper.send(signal.SIGTERM)
    assert keeper.wait_exit() == 0
    assert keeper.lines.count("told 1 end") == 1
    assert not keeper.left()


def test_last_words_are_handed_on(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("die", "fail", "serve")
    assert "exit 1: ValueError: a bug" in keeper.wait_line("started 2")


def test_ten_early_deaths_end_the_server_with_a_line(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("die")
    assert keeper.wait_exit(30.0) == 1
    assert sum(line.startswith("started") for line in keeper.lines) <= 10
    assert keeper.lines[-1].startswith("lemonbus: the supervisor died too often in its first second; the last time: ")
    assert not keeper.left()


@pytest.mark.parametrize(("behaviour", "code"), [("refuse", 2), ("fail", 1), ("give_up", 1), ("unimportable", 7)])
def test_a_first_start_that_fails_and_an_orderly_exit_pass_through(
    start_keeper: StartKeeper, behaviour: str, code: int
) -> None:
    keeper = start_keeper(behaviour)
    assert keeper.wait_exit() == code
    assert sum(line.startswith("started") for line in keeper.lines) == (behaviour != "unimportable")


def test_a_stopped_supervisor_is_killed_and_replaced(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("stop", "serve", silence=SILENCE_S)
    stopped = keeper.wait_started(0)
    assert "it was killed because it gave no sign of life" in keeper.wait_line("started 1")
    assert not processes.alive(stopped)


def test_a_supervisor_that_hangs_after_its_last_words_is_killed(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("fail_and_hang", "serve", silence=SILENCE_S)
    assert "SIGKILL: ValueError: a bug: it was killed because" in keeper.wait_line("started 1")


def test_a_stopped_fork_server_is_killed_and_replaced(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("serve", silence=SILENCE_S)
    supervisor = keeper.wait_started(0)
    stopped = int(keeper.wait_line("prepared").split()[0])
    processes.stop(stopped)
    os.kill(supervisor, signal.SIGKILL)
    keeper.wait_line("prepared", 2)
    keeper.wait_line("started", 2)
    assert not processes.alive(stopped)


@pytest.mark.parametrize("redirection", ["", "2>/dev/full", "2>&-", "<&- >&- 2>&-"])
def test_a_last_line_that_cannot_be_written_changes_no_exit_code(redirection: str, tmp_path: Path) -> None:
    behaviours = tmp_path / "behaviours"
    behaviours.write_text("die")
    script = f'exec "$0" -S tests/supervisor/keeper/run_keeper.py {behaviours} {redirection}'
    ended = subprocess.run(["sh", "-c", script, sys.executable], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert ended.returncode == 1
    assert not processes.with_word(str(behaviours))


def test_a_last_line_that_is_not_read_keeps_no_keeper_from_its_end(tmp_path: Path) -> None:
    behaviours = tmp_path / "behaviours"
    behaviours.write_text("die")
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, bytes(4096))
    command = [sys.executable, "-S", "tests/supervisor/keeper/run_keeper.py", str(behaviours)]
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=writer,
            timeout=30.0,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert ended.returncode == 1
    assert not processes.with_word(str(behaviours))


def test_a_reload_that_a_leaving_supervisor_has_not_carried_out_is_left_to_the_next(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("hand_over_at_reload", "serve")
    keeper.wait_started(0)
    keeper.send(signal.SIGHUP)
    keeper.wait_line("read one")
    keeper.send(signal.SIGHUP)
    keeper.wait_line("told 1 reload")
    keeper.send(signal.SIGTERM)
    assert keeper.wait_exit() == 0
    assert keeper.lines.count("told 1 reload") == 1


def test_a_stop_of_both_does_not_count_as_silence(start_keeper: StartKeeper) -> None:
    silence = 2.0
    keeper = start_keeper("serve", silence=silence)
    supervisor = keeper.wait_started(0)
    keeper.send(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGSTOP)
    pause(silence + 0.3)
    keeper.send(signal.SIGCONT)
    pause(0.3)  # the keeper is the first that runs again
    os.kill(supervisor, signal.SIGCONT)
    keeper.send(signal.SIGHUP)
    keeper.wait_line("told 0 reload")
    assert processes.alive(supervisor)


def test_a_fork_server_that_dies_takes_no_supervisor_with_it(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("serve")
    supervisor = keeper.wait_started(0)
    os.kill(int(keeper.wait_line("prepared").split()[0]), signal.SIGKILL)
    keeper.wait_line("prepared", 2)
    keeper.wait_line(f"told 0 {channel.HELD} {channel.FORK_SERVER}")
    assert processes.alive(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    keeper.wait_started(1)


def test_a_supervisor_that_has_closed_its_channel_to_the_fork_server_gets_another(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("serve", environment={"STAND_IN_CLOSES": "2"})
    given = f"told 0 {channel.HELD} {channel.FORK_SERVER}"
    keeper.wait_line(given, 2)
    pause(SERVE_PAUSE_S + 0.5)
    assert len([line for line in keeper.lines if line.startswith(given)]) == 2, (
        "a message about an older one changes nothing"
    )


def test_both_killed_at_once_are_replaced(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("serve")
    supervisor = keeper.wait_started(0)
    os.kill(int(keeper.wait_line("prepared").split()[0]), signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    keeper.wait_line("started", 2)  # not always the second: one may be ordered of a fork server that is dying


def test_the_second_signal_is_told_and_the_exit_code_passes_through(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("stubborn")
    keeper.wait_started(0)
    keeper.send(signal.SIGTERM)
    keeper.wait_line("told 0 end")
    keeper.send(signal.SIGINT)
    assert keeper.wait_exit() == 5


def test_a_supervisor_that_does_not_obey_the_second_signal_is_killed(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("deaf", kill=1.0)
    keeper.wait_started(0)
    keeper.send(signal.SIGTERM)
    keeper.send(signal.SIGINT)  # two of one kind that come together would be one
    assert keeper.wait_exit() == 1


def test_the_successor_of_a_supervisor_that_dies_during_the_shutdown_ends_the_server(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("stubborn", "serve")
    supervisor = keeper.wait_started(0)
    keeper.send(signal.SIGTERM)
    keeper.wait_line("told 0 end")
    os.kill(supervisor, signal.SIGKILL)
    keeper.wait_line("told 1 end")
    assert keeper.wait_exit() == 0
    assert not keeper.left()


def test_what_a_supervisor_held_and_started_is_there_for_the_next(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("hold", "serve")
    assert "zero=/dev/zero" in keeper.wait_line("started 1")
    leader, member = int(keeper.wait_line("leader")), int(keeper.wait_line("member"))
    found = processes.look(leader)
    assert found
    assert found.parent == keeper.pid
    os.kill(leader, signal.SIGTERM)
    assert keeper.wait_line("told 1 exited") == f"{leader} 3"
    wait_for(lambda: not processes.alive(member), "the rest of its group was killed before")


def test_children_that_are_left_at_the_end_are_killed(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("hold", "serve")
    keeper.wait_started(1)
    keeper.send(signal.SIGTERM)
    assert keeper.wait_exit() == 0
    assert not keeper.left()


def test_a_killed_keeper_takes_the_fork_server_with_it(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("serve")
    keeper.wait_started(0)
    keeper.send(signal.SIGKILL)
    wait_for(lambda: not keeper.left(), "fork server and supervisor see the end of their channels")


ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_terminals_end_is_the_end_and_another_sighup_is_a_reload(start_keeper: StartKeeper) -> None:
    ours, theirs = os.openpty()
    try:
        keeper = start_keeper("serve", within=(sys.executable, "-c", ON_TERMINAL), terminal=theirs)
        keeper.wait_started(0)
        keeper.send(signal.SIGHUP)
        keeper.wait_line("told 0 reload")
    finally:
        os.close(theirs)
        os.close(ours)
    assert keeper.wait_exit() == 0
    assert keeper.lines.count("told 0 end") == 1


def test_words_that_it_does_not_understand_are_ignored(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("babble", "serve")
    keeper.wait_started(1)
    keeper.send(signal.SIGTERM)
    assert keeper.wait_exit() == 0
    assert not [line for line in keeper.lines if "Error" in line]


def test_only_the_standard_library_is_imported_and_little_of_it() -> None:
    shown = subprocess.run(
        [sys.executable, "-S", "-c", "import supervisor.keeper.__main__, sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = {name.split(".")[0] for name in shown.stdout.split()}
    assert modules - {"supervisor", "protocol"} <= sys.stdlib_module_names | {"__main__"}
    assert not modules & {"typing", "json", "logging", "pathlib", "re", "subprocess", "threading"}, "they cost memory"
    ours = {name for name in shown.stdout.split() if name.startswith(("supervisor.", "protocol."))}
    assert {name for name in ours if not name.startswith("supervisor.keeper")} == {
        "protocol.runtime",
        "protocol.runtime.journal_priorities",
        "protocol.state_table",
    }


def test_it_is_small(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("die", "serve")
    keeper.wait_started(1)
    assert processes.memory(keeper.pid) < MAX_PSS


NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a process namespace")
def test_as_the_first_process_of_a_container(start_keeper: StartKeeper) -> None:
    keeper = start_keeper("hold", "serve", within=NAMESPACE)
    keeper.wait_line("started 1")
    (inside,) = processes.children(keeper.pid)
    assert keeper.wait_line("leader") != "", "an orphan became its child"
    os.kill(inside.pid, signal.SIGHUP)
    keeper.wait_line("told 1 reload")
    os.kill(inside.pid, signal.SIGTERM)
    keeper.wait_line("told 1 end")
    assert keeper.wait_exit() == 0, "a first process gets no signal that it has not asked for"
    assert not keeper.left()
