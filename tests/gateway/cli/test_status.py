"""``lemonbus status``: an idle server, and a busy one."""

from __future__ import annotations

import json
import time

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.messages.engines import LoadStage
from protocol.messages.health import (
    DiskSpace,
    EngineDeath,
    EngineDeaths,
    FailedModel,
    LoadInProgress,
    ModelProblem,
    ReplicaReport,
    RunningModel,
)
from protocol.messages.node_reports import NodeReport, NodeState
from protocol.messages.peers import Peer
from protocol.models.memory import Capacity
from protocol.models.nodes import NodeFacts
from protocol.models.recipes import ModelSpec
from tests.gateway.cli.canned_responses import health
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply


def test_status_of_an_idle_server(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["GET", "/v1/health"] = health()
    code, out, _ = lemonbus("status")
    assert code == 0
    assert out.splitlines()[0] == f"lemonbus 1 at {server.url}: ok, up 1 s, 0 running, 0 waiting"
    assert "No model is loaded" in out


def test_status_of_a_server_with_the_documented_fields_only_is_an_error(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["GET", "/v1/health"] = Reply({"status": "ok", "version": "1", "all_models_loaded": []})
    code, out, err = lemonbus("status")
    assert (code, out) == (1, "")
    assert "answered in an unexpected form; is it another release of lemonbus?" in err


def test_status_during_an_upgrade_shows_the_models_of_the_former_release(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["GET", "/v1/health"] = health(former_models=["A", "B"])
    code, out, _ = lemonbus("status")
    assert code == 0
    assert "Requests of the former release still run. When they have ended, their models are loaded again: A, B" in out
    assert "No model is loaded" not in out


def test_status_of_a_busy_server(server: FakeServer, lemonbus: Ends) -> None:
    """The report comes from the server's own code."""
    spec = ModelSpec("A", "o/r:Q4", "llamacpp", "cpu", "llm", "/m.gguf")
    ready = RunningModel(spec, "w1", "ready", 10, time.time() - 70, 4, 4096, granted=2, queued=1, pinned=True)
    idle = RunningModel(spec, "w3", "ready", 12, time.time() - 70, 4, ttl=600, expires_at=time.time() + 530)
    idle = structs.replace(idle, spec=structs.replace(spec, name="E"))
    loading = RunningModel(ModelSpec("B", "o/b:Q4", "llamacpp", "cpu", "llm", "/b"), "w2", "loading", 11, 0.0)
    server.replies["GET", "/v1/health"] = health(
        status="draining",
        version="0.1.0",
        uptime=3700.0,
        models=[ready, loading, idle],
        max_models={"llm": 4},
        granted=2,
        queued=1,
        troubled=[
            FailedModel(
                "C", Failure(Code.LOAD_FAILED, "no such\nfile", detail="one\nlibgomp.so.1: cannot open"), 3, 8.0
            )
        ],
        loads=[
            LoadInProgress("B", LoadStage.LOADING, 75.0, 2, 3, 10, "steps"),
            LoadInProgress("F", LoadStage.WAITING_FOR_MEMORY, 5.0, 1),
        ],
        deaths=[
            EngineDeaths(
                "A",
                7,
                [
                    EngineDeath(70.0, "backend_died", "llama-server was killed by SIGKILL"),
                    EngineDeath(3700.0, "backend_hung", "no answer"),
                ],
            )
        ],
        downloads=["D"],
        problems=["keys.json is broken"],
        peers=[Peer("gateway", "g1", 7), Peer("worker", "w1", 10)],
    )
    code, out, _ = lemonbus("status")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[0] == f"lemonbus 0.1.0 at {server.url}: draining, up 1 h 1 min, 2 running, 1 waiting"
    assert lines[1:3] == ["Problem: keys.json is broken", "Downloading: D"]
    assert "A (pinned) ready 2 of 4 1 4096 llamacpp 1 min ago -" in lines
    assert "E ready 0 of 4 0 - llamacpp 1 min ago 8 min" in lines
    assert "B loading 0 of ? 0 - - - -" in lines
    at = lines.index("LOADING STAGE FOR PROGRESS WAITING")
    assert lines[at + 1 : at + 3] == ["B loading 1 min 3 of 10 steps 2", "F waiting for memory 5 s - 1"]
    assert "C 3 in 8 s no such file" in lines
    assert "A 7 1 min, 1 h 1 min ago llama-server was killed by SIGKILL" in lines
    at = lines.index("Details of C:")
    assert lines[at + 1 : at + 3] == ["one", "libgomp.so.1: cannot open"]
    assert lines[-1] == "Processes: supervisor 1, gateway 7, worker 10"
    assert json.loads(lemonbus("status", "--json")[1])["lemonbus"]["pid"] == 1


def test_status_of_a_drained_server_says_how_to_end_that(server: FakeServer, lemonbus: Ends) -> None:
    problem = ModelProblem("A", "Model A could not be loaded at the start: no such file")
    server.replies["GET", "/v1/health"] = health(status="drained", drained=True, model_problems=[problem])
    lines = lemonbus("status")[1].splitlines()
    assert lines[0] == f"lemonbus 1 at {server.url}: drained, up 1 s, 0 running, 0 waiting"
    assert lines[1:3] == [
        "Drained: it takes no new requests; `lemonbus undrain` ends this.",
        f"Problem: {problem.text}",
    ]


def test_status_shows_what_is_left_of_the_machine(server: FakeServer, lemonbus: Ends) -> None:
    memory = [
        Capacity("host", 64_000_000_000, 5_300_000_000, "/ai.slice"),
        Capacity("0000:03:00.0", 24_000_000_000, 20_000_000_000, name="Card", used_percent=93.0, age=1.0),
        Capacity("MIG-1", 9_000_000_000, 0),
    ]
    disks = [DiskSpace("cache", 98_000_000, 10**12), DiskSpace("state", 5_000_000_000, 10**12)]
    server.replies["GET", "/v1/health"] = health(memory=memory, disks=disks)
    code, out, _ = lemonbus("status")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    at = lines.index("MEMORY FREE OF BUSY LIMITED BY")
    assert lines[at + 1 : at + 4] == [
        "host 5.3 GB 64 GB - /ai.slice",
        "Card 20 GB 24 GB 93 % -",
        "MIG-1 0 B 9.0 GB - -",
    ]
    assert "Free disk space: 98 MB for cache, 5.0 GB for state" in lines


def test_status_of_several_machines_names_the_node_of_each_model(server: FakeServer, lemonbus: Ends) -> None:
    spec = ModelSpec("A", "o/r:Q4", "llamacpp", "cpu", "llm", "/m.gguf")
    ready = RunningModel(spec, "w1", "ready", 10, 0.0, 4, node="gpu2")
    lost = NodeReport(NodeFacts("gpu3"), NodeState.LOST, 12.0)
    nodes = [NodeReport(NodeFacts("gpu2", devices=["cpu"]), NodeState.READY, 70.0, models=["A"]), lost]
    problem = "node gpu3 is not reachable; the others serve without it"
    memory = [Capacity("host", 64_000_000_000, 5_300_000_000)]
    peers = [Peer("gateway", "g1", 7), Peer("worker", "w1", 7, "gpu2")]
    server.replies["GET", "/v1/health"] = health(
        models=[ready], nodes=nodes, problems=[problem], memory=memory, peers=peers
    )
    lines = [" ".join(line.split()) for line in lemonbus("status")[1].splitlines()]
    assert lines[1] == f"Problem: {problem}"
    assert "MODEL STATE NODE RUNNING WAITING CONTEXT RECIPE LAST USE UNLOADED IN" in lines
    assert "A ready gpu2 0 of 4 0 - llamacpp - -" in lines
    at = lines.index("NODE STATE FOR MODELS DEVICES MEMORY FREE ADDRESS BACKENDS")
    assert lines[at + 1 : at + 3] == ["gpu2 ready 1 min 1 cpu - - -", "gpu3 lost 12 s - - - - -"]
    assert not any(line.startswith("MEMORY") for line in lines), "it is in the table of nodes"
    assert lines[-1] == "Processes: supervisor 1, gateway 7, worker 7 on gpu2"
    shown = json.loads(lemonbus("status", "--json")[1])
    assert [each["name"] for each in shown["lemonbus"]["nodes"]] == ["gpu2", "gpu3"]
    assert shown["all_models_loaded"][0]["node"] == shown["lemonbus"]["models"][0]["node"] == "gpu2"


def test_status_shows_the_engines_of_a_model_that_has_several(server: FakeServer, lemonbus: Ends) -> None:
    spec = ModelSpec("A", "o/r:Q4", "llamacpp", "cpu", "llm", "/m.gguf")
    engines = [ReplicaReport(1, "ready", slots=2, running=1, worker="w1"), ReplicaReport(2, "loading", worker="w2")]
    of_a = RunningModel(spec, "w1", "ready", 10, 0.0, 2, granted=1, replicas=engines)
    load = LoadInProgress("A", LoadStage.LOADING, 3.0, replica=2, node="gpu1")
    server.replies["GET", "/v1/health"] = health(models=[of_a], loads=[load])
    lines = [" ".join(line.split()) for line in lemonbus("status")[1].splitlines()]
    at = lines.index("A ready 1 of 2 0 - llamacpp - -")
    assert lines[at + 1 : at + 3] == ["replica 1 ready 1 of 2 - - - - -", "replica 2 loading 0 of ? - - - - -"]
    assert any(line.startswith("A (replica 2) loading (gpu1) 3 s") for line in lines)
    shown = json.loads(lemonbus("status", "--json")[1])["lemonbus"]
    assert [each["number"] for each in shown["models"][0]["replicas"]] == [1, 2]
    assert not any("node" in each for each in shown["models"][0]["replicas"])


def test_the_health_of_one_machine_names_no_node(server: FakeServer, lemonbus: Ends) -> None:
    spec = ModelSpec("A", "o/r:Q4", "llamacpp", "cpu", "llm", "/m.gguf")
    server.replies["GET", "/v1/health"] = health(models=[RunningModel(spec, "w1", "ready", 10, 0.0, 4)])
    shown = json.loads(lemonbus("status", "--json")[1])
    assert "nodes" not in shown["lemonbus"]
    assert "replicas" not in shown["lemonbus"]["models"][0]
    assert not any("node" in each for each in (*shown["all_models_loaded"], *shown["lemonbus"]["models"]))
    assert "NODE" not in lemonbus("status")[1]
