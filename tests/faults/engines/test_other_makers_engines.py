"""The promises about engines, kept for a server of any make (``command``): its death, its silence, its end, swaps and idle times."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import ANSWER
from tests.fake_engines.openai_server import section
from tests.support import processes
from tests.support.configuration_file import ConfiguredServer
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

HI = [{"role": "user", "content": "Hi"}]
_MANY = 10_000
OTHER_PORT = [sys.executable, "-m", "tests.fake_engines.openai_server", "--port", "0", "--instead-of", "{port}"]


def chat(server: LemonbusServer, model: str, **more: Any) -> Any:
    return server.client.post("/v1/chat/completions", {"model": model, "messages": HI, **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journals")


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, folder: Path) -> LemonbusServer:
    models = {
        "pausing": section("--fault", "pauses", slots=4),
        "dying": section("--fault", "dies"),
        "dying-once": section("--journal", f"{folder}/once", "--fault", "dies_at_once"),
        "dying-after-role": section("--journal", f"{folder}/role", "--fault", "dies_after_role"),
        "deaf": section("--journal", f"{folder}/deaf", "--fault", "blocks", restart_on_hangup=True),
        "stubborn": section("--fault", "ignores_sigterm"),
        "stopping-by-int": section("--journal", f"{folder}/int", stop_signal="INT"),
        "missing": {"command": ["/nowhere/at-all", "{port}"]},
        "never-ready": section("--fault", "never_ready", start_timeout=1),
        "other-port": {**section(start_timeout=1), "command": OTHER_PORT},
    }
    return start_module_server(models=models, gateway_workers=1, max_loaded_models=10, breaker_deaths=_MANY)


def test_a_stream_ends_with_an_error_when_its_server_is_killed(server: LemonbusServer) -> None:
    streams = [server.client.start_chat("pausing", stream=True) for _ in range(2)]
    for stream in streams:
        stream.until(lambda it: len(it.events) > 2)
    processes.kill(server.engine_pid("pausing"))
    for stream in streams:
        stream.finish()
        assert not stream.done
        assert (stream.error["code"], stream.error["model"]) == ("backend_died", "pausing")


def test_a_stream_ends_with_an_error_when_its_worker_is_killed(server: LemonbusServer) -> None:
    stream = server.client.start_chat("pausing", stream=True).until(lambda it: len(it.events) > 2)
    worker, engine = server.worker_pid("pausing"), server.engine_pid("pausing")
    processes.kill(worker)
    stream.finish()
    assert not stream.done
    assert stream.error["code"] in ("backend_died", "worker_gone")
    wait_for(lambda: not processes.alive(engine), "the server died with its worker")


def test_a_request_whose_server_dies_before_the_first_token_is_tried_again(server: LemonbusServer) -> None:
    answer = chat(server, "dying-once")
    assert answer.status == 200, answer
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER
    again = server.client.start_chat("dying-after-role", stream=True).finish()
    assert (again.done, again.text) == (True, ANSWER)
    stream = server.client.start_chat("dying", stream=True).finish()
    assert not stream.done
    assert stream.error["code"] == "backend_died"
    assert stream.error["tokens_sent"] > 0


def test_a_client_that_hangs_up_frees_its_slot(server: LemonbusServer) -> None:
    streams = [server.client.start_chat("pausing", stream=True) for _ in range(4)]
    for stream in streams:
        stream.until(lambda it: len(it.events) > 2)
    engine = server.engine_pid("pausing")
    streams[0].hang_up()
    later = server.client.start_chat("pausing", stream=True).until(lambda it: len(it.events) > 2)
    assert server.engine_pid("pausing") == engine, "the server was not restarted for it"
    for stream in (*streams[1:], later):
        stream.hang_up()


def test_a_server_that_goes_on_for_a_client_that_is_gone_is_started_again(server: LemonbusServer, folder: Path) -> None:
    stream = server.client.start_chat("deaf", stream=True)
    wait_for((folder / "deaf.blocked").exists, "the server works on the request")
    engine = server.engine_pid("deaf")
    stream.hang_up()
    assert chat(server, "deaf").status == 200
    assert server.engine_pid("deaf") != engine


def test_a_server_that_ignores_its_signal_is_killed(server: LemonbusServer) -> None:
    assert chat(server, "stubborn").status == 200
    engine = server.engine_pid("stubborn")
    assert server.client.post("/v1/unload", {"model_name": "stubborn"}, patience=60).status == 200
    assert not processes.alive(engine)


def test_a_server_gets_the_signal_of_its_section(server: LemonbusServer, folder: Path) -> None:
    assert chat(server, "stopping-by-int").status == 200
    engine = server.engine_pid("stopping-by-int")
    assert server.client.post("/v1/unload", {"model_name": "stopping-by-int"}).status == 200
    assert (folder / "int.signal").read_text() == "SIGINT"
    assert not processes.alive(engine)


def test_what_cannot_be_started_is_told(server: LemonbusServer) -> None:
    missing = chat(server, "missing")
    assert missing.status == 409, missing
    assert "at-all was not found" in missing.error["message"]
    assert "/nowhere" not in missing.error["message"]
    late = chat(server, "never-ready")
    assert (late.status, late.error["code"]) == (503, "load_failed")
    assert "did not become ready" in late.error["message"]
    assert late.error["detail"].startswith("it was not ready within 1 s: ")
    elsewhere = chat(server, "other-port")
    assert (elsewhere.status, elsewhere.error["code"]) == (503, "load_failed")
    assert elsewhere.error["detail"].startswith("it was not ready within 1 s: nothing listened on its port")


def test_a_silent_server_is_ended(start_server: StartServer) -> None:
    server = start_server(models={"silent": section("--fault", "hangs")}, silence=3.0, breaker_deaths=_MANY)
    answer = chat(server, "silent", patience=60)
    assert (answer.status, answer.error["code"]) == (500, "backend_hung")
    stopped = start_server(models={"stopped": section("--fault", "pauses")}, silence=3.0)
    stream = stopped.client.start_chat("stopped", stream=True).until(lambda it: len(it.events) > 2)
    stream.finish(patience=60)
    assert not stream.done
    assert stream.error["code"] == "backend_hung"


def test_swaps_pins_and_idle_times(start_server: StartServer) -> None:
    models = {"one": section(), "two": section(), "kept": section(pin=True, type="embedding")}
    server = start_server(models=models, max_loaded_models=1)
    vectors = server.client.post("/v1/embeddings", {"model": "kept", "input": "Hi"})
    assert vectors.status == 200, vectors
    for model in ("one", "two", "one"):
        assert chat(server, model).status == 200
        loaded = {each["model_name"] for each in server.health()["all_models_loaded"]}
        assert loaded == {model, "kept"}
    started = time.monotonic()
    assert chat(server, "one").status == 200
    assert server.client.post("/v1/load", {"model_name": "one", "ttl": 1}).status == 200
    wait_for(lambda: server.engine_now("one") is None, "it was idle for long enough")
    assert time.monotonic() - started >= 1


def test_a_section_comes_changes_and_goes(tmp_path: Path) -> None:
    def written(arguments: list[str]) -> str:
        command = section(*arguments)
        words = ", ".join(f"'{word}'" for word in command["command"])
        path = command["env"]["PYTHONPATH"]
        return f"[models.own]\ncommand = [{words}]\nenv = {{ PYTHONPATH = '{path}' }}\n"

    with ConfiguredServer("tiny-loop", gateway_workers=1) as server:
        assert chat(server, "own").status == 404
        server.configure(written([]))
        server.reload()
        wait_for(lambda: chat(server, "own").status == 200, "the new section is a model")
        first = server.engine_pid("own")
        server.configure(written(["--journal", str(tmp_path / "journal")]))
        server.reload()
        wait_for(lambda: (it := server.engine_now("own")) and it.pid != first, "it runs with its new command")
        wait_for(lambda: chat(server, "own").status == 200, "it serves again")
        assert (tmp_path / "journal").exists()
        second = server.engine_pid("own")
        server.configure("")
        server.reload()
        wait_for(lambda: chat(server, "own").status == 404, "the section is gone")
        wait_for(lambda: not processes.alive(second), "and its server with it")
