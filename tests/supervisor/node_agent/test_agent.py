"""A real agent and real processes of its node; the supervisor is the test."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from protocol.config.settings import read_settings
from protocol.messages.nodes import (
    KillProcess,
    NodeChanged,
    NodeLeaves,
    NodeRead,
    ProcessEnded,
    ReadNode,
    StartProcess,
)
from protocol.messages.peers import Ping, Pong, Shutdown
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.models.memory import HOST
from supervisor.node_agent.agent import EXIT_REFUSED
from tests.supervisor.node_agent.conftest import BOOT, JOB, KEYS, AgentsSupervisor
from tests.support import processes
from tests.support.node_agents import NodeUnderTest
from tests.support.waiting import wait_for
from workers.jobs.ray_cluster.agent_actor import REFUSED


def running(node: NodeUnderTest) -> int:
    """How many processes of the node run besides the agent."""
    return sum(each.pid != node.pid for each in node.process_tree())


def test_an_agent_says_what_its_node_has_and_writes_the_settings_for_its_processes(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    agent, snapshot = supervisor.hello()
    assert agent.startswith("a")
    facts = snapshot.facts
    assert (facts.name, facts.address, facts.labels, facts.resources) == (
        "gpu2",
        "127.0.0.1",
        {"zone": "west"},
        {"npu": 1.0},
    )
    assert facts.cpus == len(os.sched_getaffinity(0))
    assert facts.memory > 0
    assert "llamacpp:cpu" in facts.backends, "a request that comes next can run there"
    supervisor.send(agent, Ping(7))
    assert supervisor.next(Pong).number == 7
    written = read_settings(node.runtime)
    assert (written.runtime_dir, written.cache_dir, written.state_dir) == (
        str(node.runtime),
        str(node.home / "cache"),
        str(node.home / "state"),
    )
    assert (written.peer_silence, written.api_key) == (60.0, "cl1ent-key"), "what the supervisor sends"


def test_a_backend_that_is_installed_later_is_noticed(supervisor: AgentsSupervisor, node: NodeUnderTest) -> None:
    agent, snapshot = supervisor.hello()
    supervisor.send(agent, Ping(1))
    supervisor.next(Pong)  # it has its settings, and what it has read for them
    backend, recipe, name = "sd-cpp:cpu", "sd-cpp", "cpu"
    assert backend not in snapshot.facts.backends
    record = installations.backend_folder(str(node.home / "cache"), recipe, name) / "1" / installations.RECORD_FILE
    record.parent.mkdir(parents=True)
    record.write_bytes(msgspec.json.encode(InstallationRecord(recipe, name, "1", "digest", "sd-server")))
    supervisor.next(NodeChanged, lambda changed: backend in changed.facts.backends)


def test_a_process_is_started_read_killed_and_its_end_is_reported(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    [job] = [each for each in node.process_tree() if each.runs(JOB)]
    environment = processes.environment(job.pid)
    assert (environment["LEMONBUS_NODE"], environment["LEMONBUS_KEEPER"]) == ("gpu2", str(node.pid))
    supervisor.send(agent, ReadNode(3, ["j1", "j2"]))
    read = supervisor.next(NodeRead)
    assert (read.number, [each.place for each in read.capacities]) == (3, [HOST])
    assert read.workers["j1"].resident[job.pid] > 1_000_000
    assert list(read.workers) == ["j1"]
    supervisor.send(agent, KillProcess("j2"))
    supervisor.send(agent, KillProcess("j1"))
    assert supervisor.next(ProcessEnded) == ProcessEnded("j1", "SIGKILL")
    assert running(node) == 0


@pytest.mark.parametrize("module", ["os", "workers.jobs", "workers.jobs..pull", "supervisor", "workers.worker.main"])
def test_only_our_own_workers_and_jobs_are_started(
    supervisor: AgentsSupervisor, node: NodeUnderTest, module: str
) -> None:
    agent, _ = supervisor.hello()
    supervisor.send(agent, StartProcess("j1", "job", module))
    assert "could not be started" in supervisor.next(ProcessEnded).why
    assert running(node) == 0


def test_an_order_that_comes_twice_starts_one_process(supervisor: AgentsSupervisor, node: NodeUnderTest) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    supervisor.send(agent, StartProcess("j1", "job", JOB))
    supervisor.send(agent, KillProcess("j1"))
    supervisor.next(ProcessEnded)
    supervisor.send(agent, StartProcess("j1", "job", JOB))  # it was lost on the way, and has been ended since
    supervisor.start(agent, "j2")
    assert running(node) == 1


def test_the_next_supervisor_finds_what_runs_and_what_has_ended(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    supervisor.start(agent, "j2")
    supervisor.stop()
    victim = next(
        each.pid for each in node.process_tree() if processes.environment(each.pid).get("LEMONBUS_PEER") == "j1"
    )
    processes.kill(victim)
    # A process is there until its parent, the agent, has taken note of its end.
    wait_for(lambda: not Path(f"/proc/{victim}").exists(), "one job has ended while there was no supervisor")
    supervisor.listen()
    again, snapshot = supervisor.hello()
    assert again == agent
    assert [(each.name, each.role, each.fingerprint) for each in snapshot.processes] == [("j2", "job", "f")]
    assert snapshot.ended == [ProcessEnded("j1", "SIGKILL")]
    supervisor.send(agent, KillProcess("j2"))
    assert supervisor.next(ProcessEnded).name == "j2"


def test_a_refused_agent_ends_its_processes_and_begins_anew(supervisor: AgentsSupervisor, node: NodeUnderTest) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    supervisor.send(agent, Shutdown(0.0, "this node was lost"))
    other, snapshot = supervisor.hello()
    assert other != agent
    assert (snapshot.processes, snapshot.ended, running(node)) == ([], [], 0)
    supervisor.start(other, "j1")
    assert running(node) == 1


def test_the_end_of_the_server_is_the_end_of_the_node(supervisor: AgentsSupervisor, node: NodeUnderTest) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    supervisor.send(agent, Shutdown(0.0, "the server ends", draining=True))
    supervisor.until(lambda: node.process.poll() is not None, "the agent has ended")
    assert node.wait_end() == 0
    node.assert_nothing_left()


def test_an_agent_that_the_server_cannot_use_says_why_and_ends_with_a_code_of_its_own(
    supervisor: AgentsSupervisor,
) -> None:
    with NodeUnderTest("gpu2", supervisor.membership, BOOT) as node:
        agent, _ = supervisor.hello()
        supervisor.send(agent, Shutdown(0.0, "another release", draining=True, refused=True))
        supervisor.until(lambda: node.process.poll() is not None, "the agent has ended")
        assert node.wait_end() == EXIT_REFUSED == REFUSED
        assert node.printed == ["lemonbus: node agent: another release\n"]


def test_an_agent_without_a_supervisor_ends_everything_after_the_grace(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    supervisor.grace = 0.5
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    supervisor.stop()
    assert node.wait_end() == 1
    node.assert_nothing_left()


def test_one_that_no_supervisor_welcomes_ends_as_well(supervisor: AgentsSupervisor) -> None:
    supervisor.welcomes = False
    with NodeUnderTest("gpu2", supervisor.membership, BOOT, grace=0.5) as node:
        supervisor.until(lambda: node.process.poll() is not None, "the agent has ended")
        assert node.wait_end() == 1


def test_a_killed_agent_takes_its_processes_with_it_even_stopped_ones(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    supervisor.start(agent, "j2")
    [stopped, _] = [each.pid for each in node.process_tree() if each.runs(JOB)]
    os.kill(stopped, signal.SIGSTOP)
    processes.kill(node.pid)
    node.process.wait()
    node.assert_nothing_left(5.0)


def test_what_a_killed_agent_has_left_is_ended_by_the_next_one(
    supervisor: AgentsSupervisor, node: NodeUnderTest
) -> None:
    supervisor.hello()
    processes.kill(node.pid)
    node.process.wait()
    command = ["sleep", "600"]
    keeper = {"LEMONBUS_CONTEXT_DIR": str(node.runtime), "LEMONBUS_BOOT": BOOT, "LEMONBUS_KEEPER": str(node.pid)}
    left = os.posix_spawnp("sleep", command, {**os.environ, **keeper})
    node.start_again()
    supervisor.hello()
    _, status = wait_for(lambda: ended(left), "what was left has been killed")
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def ended(child: int) -> tuple[int, int] | None:
    """Return the pid and the status of a child that has ended."""
    pid, status = os.waitpid(child, os.WNOHANG)
    return (pid, status) if pid else None


def test_a_node_without_its_runtime_directory_ends(supervisor: AgentsSupervisor, node: NodeUnderTest) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    shutil.rmtree(node.runtime)
    assert "was changed by something else" in supervisor.next(NodeLeaves).why
    assert node.wait_end() == 1
    node.assert_nothing_left()


def test_no_key_is_shown_to_other_users(supervisor: AgentsSupervisor, node: NodeUnderTest) -> None:
    agent, _ = supervisor.hello()
    supervisor.start(agent, "j1")
    for process in node.process_tree():
        shown = [*process.words, *processes.environment(process.pid).values()]
        assert not [word for word in shown if KEYS.member.secret in word]
    secret = json.dumps(KEYS.member.secret).encode()
    holders = [path for path in node.home.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert sorted(path.name for path in holders) == ["agent.json", "cluster.json"]
    assert {path.stat().st_mode & 0o777 for path in holders} == {0o600}
    assert node.runtime.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        (lambda file: file.chmod(0o644), "other users may read it"),
        (lambda file: file.write_text('{"node": "head"}'), "required field"),
        (lambda file: file.unlink(), "No such file"),
    ],
    ids=["readable by others", "another form", "missing"],
)
def test_an_agent_with_a_wrong_file_says_so(
    supervisor: AgentsSupervisor, change: Callable[[Path], None], printed: str
) -> None:
    with NodeUnderTest("gpu2", supervisor.membership, BOOT) as node:
        supervisor.hello()
        processes.kill(node.pid)
        node.process.wait()
        change(node.file)
        node.start_again()
        assert node.wait_end() == 2
        assert any(printed in line for line in node.printed), node.printed
