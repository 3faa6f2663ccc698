"""An administrator sees the whole server; any other key sees its own part, and nothing about processes and files."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec import structs

from gateway.overview.view import Access, Viewer, overview_for
from protocol.messages.model_overview import ModelDeath, ModelDeaths, ModelFailure, ModelOverview, WaitingKey
from protocol.messages.overview import (
    Disk,
    Download,
    EndedRequest,
    NodeOverview,
    OverviewReport,
    PlaceMemory,
    RequestOverview,
    ServerOverview,
)

SECRET = "/home/operator"


def model(state: str = "ready") -> ModelOverview:
    return ModelOverview(
        state,
        running=1,
        queue=[WaitingKey("other", 2, 1.5)],
        worker_pid=7001,
        engine_pid=7002,
        command=["llama-server", "-m", SECRET],
        failure=ModelFailure("load_failed", "it does not fit", 3, detail=f"error: {SECRET}"),
        deaths=ModelDeaths(1, [ModelDeath(5.0, "backend_died", "llama-server has died: SIGSEGV")]),
    )


def request(key: str) -> RequestOverview:
    return RequestOverview(f"r-{key}", "chat-a", "chat/completions", "running", 1.0, key=key)


def ended(key: str) -> EndedRequest:
    return EndedRequest(f"e-{key}", 2.0, 1.0, "chat/completions", key=key)


REPORT = OverviewReport(
    time=9.0,
    server=ServerOverview("1.0", "ok", 1.0, 4, pid=7000, default_model="big", problems=[f"{SECRET} is full"]),
    running=2,
    waiting=1,
    memory={"host": PlaceMemory(8, 4, limited_by=SECRET)},
    disks={"state": Disk(1, 2)},
    models={"chat-a": model(), "big": model()},
    downloads={"chat-b": Download("running", 1, 2), "huge": Download("running", 1, 2)},
    requests={"g1:1": request("mine"), "g1:2": request("other"), "g1:3": request("")},
    ended={"1": ended("mine"), "2": ended("other"), "3": ended("")},
    sample=None,
)


NODE = NodeOverview("ready", 1.0, SECRET, 8, ["cpu"], {"host": PlaceMemory(8, 4, limited_by=SECRET)}, ["big", "chat-a"])
CLUSTER = structs.replace(REPORT, nodes={"gpu2": NODE})


def viewer(*, admin: bool = False, key: str = "", needed: bool = False, models: tuple[str, ...] = ()) -> Viewer:
    return Viewer(Access(admin, key, needed), models)


@pytest.mark.parametrize("who", [viewer(admin=True), viewer(admin=True, key="root", needed=True)])
def test_an_administrator_sees_everything(who: Viewer) -> None:
    seen = overview_for(REPORT, who)
    for field in OverviewReport.__struct_fields__:
        if field != "sample":
            assert getattr(seen, field) == getattr(REPORT, field), field
    assert seen.access == who.access


def test_a_key_sees_its_models_and_its_requests() -> None:
    seen = overview_for(REPORT, viewer(key="mine", needed=True, models=("chat-*",)))
    assert (set(seen.models), set(seen.downloads)) == ({"chat-a"}, {"chat-b"})
    assert (set(seen.requests), set(seen.ended)) == ({"g1:1"}, {"1"})
    assert (seen.running, seen.waiting) == (2, 1), "others are counted"
    assert seen.server.default_model == ""
    assert seen.models["chat-a"].deaths == REPORT.models["chat-a"].deaths


def test_an_administrator_sees_all_of_a_node_and_a_key_its_models_there() -> None:
    assert overview_for(CLUSTER, viewer(admin=True)).nodes == CLUSTER.nodes
    seen = overview_for(CLUSTER, viewer(key="mine", needed=True, models=("chat-*",)))
    place = PlaceMemory(8, 4)
    assert seen.nodes == {"gpu2": structs.replace(NODE, address="", memory={"host": place}, models=["chat-a"])}
    assert "nodes" not in msgspec.to_builtins(overview_for(REPORT, viewer())), "the server has one machine"


@pytest.mark.parametrize("who", [viewer(), viewer(key="mine", needed=True)])
def test_others_see_no_path_process_or_output(who: Viewer) -> None:
    shown = json.loads(msgspec.json.encode(overview_for(REPORT, who)))
    text = json.dumps(shown)
    assert SECRET not in text
    assert "700" not in text, "no pid"
    assert "other" not in text, "no other key"
    assert shown["models"]["big"]["failure"] == {"code": "load_failed", "message": "it does not fit", "failures": 3}


def test_a_caller_without_a_key_or_an_administrators_rights_sees_no_requests() -> None:
    seen = overview_for(REPORT, viewer())
    assert (seen.requests, seen.ended) == ({}, {})
    assert set(seen.models) == {"chat-a", "big"}
