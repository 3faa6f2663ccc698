"""FLM models, as the specification describes them and as a fake ``flm serve`` behaves: pull, load, and one of each type on the NPU."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from tests.compatibility.flm_on_npu import EMBED, MODEL, SPEECH, TAG, engine_of, load, transcribe
from tests.compatibility.hub_server import ids, pull, registered
from tests.fake_engines import flm
from tests.support import processes
from tests.support.clients.http_client import run_concurrently
from tests.support.fakes.hub import Hub
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def test_a_pull_shows_flms_own_progress(package_npu_server: tuple[LemonbusServer, Path], flm_home: Path) -> None:
    flm_server = package_npu_server[0]
    if MODEL in ids(flm_server):
        assert flm_server.client.post("/v1/delete", {"model_name": MODEL}).status == 200
    assert MODEL not in ids(flm_server)
    flm.set_behaviour(flm_home, pull_fails=True)
    status, body = pull(flm_server, model_name=MODEL)
    assert (status, body["status"]) == (502, "error")
    assert "Couldn't resolve host name; [ERROR]  Failed to pull model" in body["message"]
    assert MODEL not in ids(flm_server)
    flm.set_behaviour(flm_home)
    stream = flm_server.client.post("/v1/pull", {"model_name": MODEL, "stream": True})
    events = [(event.name, event.json()) for event in stream.messages]
    assert events[-1][0] == "complete"
    last = [data for name, data in events if name == "progress"][-1]
    assert (last["file"], last["file_index"], last["total_files"]) == ("model.q4nx", 3, 3)
    assert last["bytes_total"] == 1100 * flm.MIB
    assert MODEL in ids(flm_server)
    entries = flm_server.client.get("/v1/models?show_all=true").json()["data"]
    size = next(entry["size"] for entry in entries if entry["id"] == MODEL)
    assert size == pytest.approx(1.2358, abs=0.001), "the size in flm's list"


def test_a_checkpoint_of_flm_is_its_tag(flm_server: LemonbusServer, session_hub: Hub) -> None:
    session_hub.transfers.clear()
    status, body = pull(flm_server, model_name="user.flm-x", checkpoint=TAG, recipe="flm")
    assert (status, body["message"]) == (200, "Installed model: user.flm-x")
    assert registered(flm_server)["flm-x"]["checkpoint"] == TAG
    assert {"user.flm-x", MODEL} <= set(ids(flm_server))
    assert not session_hub.transfers
    assert flm_server.client.post("/v1/delete", {"model_name": "user.flm-x"}).status == 200
    assert "flm-x" not in registered(flm_server)
    assert MODEL in ids(flm_server), "it is of the same files"


def test_system_info_shows_the_problem_that_flm_reports(flm_server: LemonbusServer, flm_home: Path) -> None:
    flm.set_behaviour(flm_home, ready=False)
    body = flm_server.client.get("/v1/system-info").json()
    for name in ("npu", "default"):
        shown = body["recipes"]["flm"]["backends"][name]
        assert (shown["state"], shown["devices"]) == ("update_required", ["amd_npu"])
        assert shown["message"] == "flm cannot use the NPU: the NPU's firmware is too old."
        assert (shown["action"], shown["version"]) == ("flm validate", flm.VERSION)
    flm.set_behaviour(flm_home, ready=True)

    def state() -> str:
        report = flm_server.client.get("/v1/system-info").json()
        return str(report["recipes"]["flm"]["backends"]["npu"]["state"])

    wait_for(lambda: state() == "installed", "the state follows the update of the firmware", 20)


def test_a_model_is_loaded_and_health_has_it(flm_server: LemonbusServer) -> None:
    flm_server.client.post("/v1/unload", {})
    body = load(flm_server, ctx_size=700).json()
    assert (body["status"], body["message"]) == ("success", f"Loaded model: {MODEL}")
    (shown,) = flm_server.health()["all_models_loaded"]
    assert shown.items() >= {
        "model_name": MODEL,
        "checkpoint": TAG,
        "recipe": "flm",
        "type": "llm",
        "device": "npu",
        "recipe_options": {"ctx_size": 700},
    }.items()  # fmt: skip
    engine = engine_of(flm_server)
    options = {flag: engine.option(flag) for flag in ("serve", "--ctx-len", "--host", "--cors")}
    assert options == {"serve": TAG, "--ctx-len": "700", "--host": "127.0.0.1", "--cors": "0"}
    assert shown["backend_url"] == f"http://127.0.0.1:{engine.option('--port')}/v1"
    state = flm_server.state()["models"][0]
    assert (state["slots"], state["context"]) == (1, 700)
    assert flm_server.client.post("/v1/unload", {"model_name": MODEL}).status == 200
    assert processes.look(engine.pid) is None
    assert flm_server.health()["all_models_loaded"] == []


def test_a_model_that_it_cannot_load(flm_server: LemonbusServer, flm_home: Path) -> None:
    assert flm_server.client.post("/v1/unload", {}).status == 200
    flm.set_behaviour(flm_home, load_fails=TAG)
    answer = load(flm_server)
    assert (answer.status, answer.error["code"]) == (503, "load_failed")
    (problem,) = flm_server.state()["troubled"]
    assert f"Failed to load {TAG} model!" in problem["detail"]
    flm.set_behaviour(flm_home)
    assert load(flm_server).status == 200


def test_embeddings_are_a_process_of_their_own(flm_server: LemonbusServer) -> None:
    answer = flm_server.client.post("/v1/embeddings", {"model": EMBED, "input": ["abcd", "abcdefgh"]}).json()
    assert [item["embedding"] for item in answer["data"]] == [[0.5, -0.5], [1.0, -0.5]]
    assert (answer["object"], answer["model"]) == ("list", EMBED)
    coded = {"model": EMBED, "input": "abcd", "encoding_format": "base64"}
    (item,) = flm_server.client.post("/v1/embeddings", coded).json()["data"]
    assert struct.unpack("<2f", base64.b64decode(item["embedding"])) == (0.5, -0.5)
    engine = engine_of(flm_server, EMBED)
    assert (engine.option("serve"), engine.option("--embed")) == ("--embed", "1")
    assert flm_server.client.post("/v1/embeddings", {"model": EMBED, "input": [1, 2]}).status == 400


def test_so_are_transcriptions(flm_server: LemonbusServer) -> None:
    assert transcribe(flm_server).json()["text"] == "the words"
    assert transcribe(flm_server, response_format="text").body == b"the words\n"
    timed = transcribe(flm_server, response_format="srt")
    assert (timed.status, timed.error["param"]) == (501, "response_format")
    engine = engine_of(flm_server, SPEECH)
    assert (engine.option("serve"), engine.option("--asr")) == ("--asr", "1")
    shown = next(each for each in flm_server.health()["all_models_loaded"] if each["model_name"] == SPEECH)
    assert (shown["type"], shown["device"]) == ("audio", "npu")


def test_flags_that_lemonbus_sets_are_refused(flm_server: LemonbusServer) -> None:
    answer = load(flm_server, flm_args="--pmode turbo --port 1")
    assert (answer.status, answer.error["param"]) == (400, "flm_args")
    assert load(flm_server, flm_args="--pmode turbo --socket 20").status == 200
    assert engine_of(flm_server).words[-4:] == ("--pmode", "turbo", "--socket", "20")


def test_the_npu_has_one_model_of_each_type(flm_server: LemonbusServer) -> None:
    other = "Qwen3-0.6b-FLM"
    assert load(flm_server).status == 200
    assert load(flm_server, EMBED).status == 200
    assert load(flm_server, "extra.tiny-chat").status == 200
    before = {each["model_name"] for each in flm_server.health()["all_models_loaded"]}
    assert before >= {MODEL, EMBED, "extra.tiny-chat"}
    assert load(flm_server, other).status == 200
    loaded = {each["model_name"] for each in flm_server.health()["all_models_loaded"]}
    assert loaded == {*before, other} - {MODEL}, "it was unloaded from the NPU, and no other model was"
    answers = run_concurrently(2, lambda number: flm_server.client.chat((MODEL, other)[number]).status)
    assert answers == [200] * 2
