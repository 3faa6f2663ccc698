"""What an actor starts on its node, without Ray: with which environment and settings, and that it ends with the actor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from protocol.config.agent_settings import AgentSettings
from protocol.wire.bus_address import ClusterMembership
from protocol.wire.curve import new_cluster_keys
from tests.support import processes
from tests.support.source_code import ROOT
from tests.support.waiting import wait_for
from workers.jobs.ray_cluster import agent_actor
from workers.jobs.ray_cluster.__main__ import AgentOrders
from workers.jobs.ray_cluster.agent_actor import AgentActor
from workers.jobs.ray_cluster.agent_plan import AgentPlan, ClusterNode

ORDER = json.dumps({"server": "abc", "node": "gpu1", "boot": "b"})
AGENT = """
import json, os, signal, sys, time
from pathlib import Path
path = os.environ["LEMONBUS_AGENT_FILE"]
report = {"pid": os.getpid(), "settings": json.loads(Path(path).read_text()), "mode": os.stat(path).st_mode & 0o777,
          "environment": dict(os.environ), "words": sys.argv}
def end(*_):
    Path(os.environ["REPORT"] + ".ended").touch()
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGHUP, end)
Path(os.environ["REPORT"] + ".new").write_text(json.dumps(report))
os.rename(os.environ["REPORT"] + ".new", os.environ["REPORT"])
time.sleep(600)
"""
ACTOR = """
import signal, sys, time
from workers.jobs.ray_cluster.agent_actor import AgentActor
actor = AgentActor()
print(repr(actor.start(sys.argv[1], "stand_in_agent")), flush=True)
signal.signal(signal.SIGUSR1, lambda *_: [actor.drain() for _ in range(2)])
print(actor.wait(600), flush=True)
time.sleep(600)
"""


class Actor:
    """A process with an actor, whose agent is a stand-in that reports what it was given."""

    def __init__(self, folder: Path) -> None:
        self.report_path = folder / "report"
        (folder / "stand_in_agent.py").write_text(AGENT)
        (folder / "lemonbus.py").write_text(f"PACKAGES_DIR = {str(folder)!r}")
        environment = {
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
            "REPORT": str(self.report_path),
            "XDG_RUNTIME_DIR": "/run/user/0",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "2,3",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", ACTOR, ORDER], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def report(self) -> dict[str, object]:
        wait_for(self.report_path.exists, "the agent has been started")
        return dict(json.loads(self.report_path.read_text()))


@pytest.fixture
def actor(tmp_path: Path) -> Iterator[Actor]:
    actor = Actor(tmp_path)
    with actor.process:
        yield actor
        actor.process.kill()


def test_an_agent_gets_its_settings_in_memory_and_the_devices_of_the_actor(actor: Actor, tmp_path: Path) -> None:
    assert actor.output.readline() == "''\n"
    report = actor.report()
    assert report["settings"] == {
        "node": "gpu1",
        "boot": "b",
        "runtime_dir": f"/run/user/0/lemonbus-{os.geteuid()}-abc",
        "cache_dir": f"{tmp_path}/cache/lemonbus",
        "state_dir": f"{tmp_path}/cache/lemonbus/node-abc",
        "machine_dir": "/",
    }
    assert report["mode"] == 0o600
    environment = report["environment"]
    assert isinstance(environment, dict)
    assert environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "OMP_NUM_THREADS" not in environment
    assert not any("gpu1" in str(value) for value in environment.values())
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_is_told_to_end_when_its_actor_ends(actor: Actor, number: int) -> None:
    report = actor.report()
    actor.process.send_signal(number)
    wait_for(actor.report_path.with_name("report.ended").exists, "it was told to end")
    pid = int(str(report["pid"]))
    wait_for(lambda: not processes.alive(pid), "it has ended")


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGKILL, "its agent was ended by SIGKILL\n"), (signal.SIGTERM, "its agent ended with exit code 7\n")],
)
def test_the_end_of_an_agent_is_explained_and_ends_the_actor(actor: Actor, number: int, expected: str) -> None:
    assert actor.output.readline() == "''\n"
    os.kill(int(str(actor.report()["pid"])), number)
    assert actor.output.readline() == expected
    assert actor.process.wait(agent_actor.LAST_ANSWER_S + 15) == 0


def test_an_agent_whose_actor_drains_is_told_to_end(actor: Actor) -> None:
    assert actor.output.readline() == "''\n"
    actor.report()
    actor.process.send_signal(signal.SIGUSR1)
    assert actor.output.readline() == "its agent ended with exit code 7\n"


def test_an_agent_that_the_server_refuses_is_explained() -> None:
    assert agent_actor.how_ended(agent_actor.REFUSED) == "was refused by the server, whose log says why"


def test_a_node_without_lemonbus_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise ModuleNotFoundError

    ended: list[int] = []
    monkeypatch.setattr(agent_actor.importlib, "import_module", missing)
    monkeypatch.setattr(agent_actor, "LAST_ANSWER_S", 0.0)
    monkeypatch.setattr(agent_actor.os, "_exit", ended.append)
    monkeypatch.setattr(agent_actor, "UNUSED_S", 0.01)
    actor = AgentActor()
    problem = actor.start(ORDER)
    assert problem.startswith("lemonbus is not installed in Ray's Python there")
    assert actor.wait(10.0) == problem
    wait_for(lambda: ended == [0], "the actor has ended")


def test_an_actor_that_no_driver_uses_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(agent_actor.os, "_exit", ended.append)
    monkeypatch.setattr(agent_actor, "UNUSED_S", 0.01)
    AgentActor()
    wait_for(lambda: ended == [0], "the actor has ended")


def test_the_variables_are_those_of_the_raylet(tmp_path: Path) -> None:
    """Ray sets further ones for its actors, which an engine must not get."""
    with subprocess.Popen(["sleep", "600"], env={"HOME": "/h", "OMP_NUM_THREADS": "4"}) as raylet:
        wait_for(lambda: b"HOME=/h" in Path(f"/proc/{raylet.pid}/environ").read_bytes(), "it runs")
        own = {"RAY_RAYLET_PID": str(raylet.pid), "OMP_NUM_THREADS": "1", "ROCR_VISIBLE_DEVICES": "0", "X": "y"}
        assert agent_actor.agent_environment(own) == {"HOME": "/h", "OMP_NUM_THREADS": "4", "ROCR_VISIBLE_DEVICES": "0"}
        raylet.kill()
    assert agent_actor.agent_environment({"OMP_NUM_THREADS": "1", "X": "y"}) == {"X": "y"}


def test_what_a_driver_orders_and_an_actor_completes_are_settings_of_an_agent() -> None:
    node = ClusterNode("f" * 56, "10.0.0.2", "gpu1", "vm", {"zone": "west"}, {"CPU": 1.0, "npu": 1.0})
    plan = AgentPlan()
    plan.nodes_seen([node], 0.0)
    membership = ClusterMembership("10.0.0.1:7000", new_cluster_keys().of_member(), listen="10.0.0.1")
    (agent,) = plan.agents.values()
    order = AgentOrders(membership, "boot", 12.0).order_for(agent)
    settings = msgspec.json.decode(agent_actor.completed(order, {}), type=AgentSettings)
    assert (settings.node, settings.boot, settings.grace) == ("gpu1", "boot", 12.0)
    assert (settings.labels, settings.resources) == ({"zone": "west"}, {"npu": 1.0})
    assert settings.membership == ClusterMembership("10.0.0.1:7000", membership.keys), "it listens at its own address"


def test_the_directories_of_a_node_may_be_set_there() -> None:
    variables = {"LEMONBUS_CACHE_DIR": "/models", "LEMONBUS_MACHINE_DIR": "/host", "HOME": "/home/x"}
    completed = json.loads(agent_actor.completed(ORDER, variables))
    assert (completed["cache_dir"], completed["machine_dir"]) == ("/models", "/host")
    assert completed["runtime_dir"] == f"/tmp/lemonbus-{os.geteuid()}-abc"  # noqa: S108
    assert json.loads(agent_actor.completed(ORDER, {"HOME": "/home/x"}))["cache_dir"] == "/home/x/.cache/lemonbus"
