"""Pinned and busy models stay. A model that cannot be loaded evicts no model, or one model once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program_by_model
from tests.support.clients.http_client import chat_body
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import stays, wait_for

CHAT, TALES, LOOP = "extra.tiny-chat", "extra.tiny-tale", "extra.tiny-loop"


def refused(answer: HttpExchange, code: str) -> None:
    assert answer.status == 503, answer
    assert answer.error["code"] == code
    assert float(answer.headers["retry-after"]) >= 1
    assert "/opt/" not in answer.error["message"], "no path of the machine"


@pytest.fixture(scope="module")
def with_broken_files(single_model_server: LemonbusServer) -> LemonbusServer:
    """A server that may load one model, with files that are not models."""
    server = single_model_server
    whole = (server.models / "tiny-tale.gguf").read_bytes()
    (server.models / "truncated.gguf").write_bytes(whole[: len(whole) // 2])
    (server.models / "headless.gguf").write_bytes(whole[:12])
    (server.models / "nonsense.gguf").write_bytes(b"<html>404 Not Found</html>" * 100)
    (server.models / "empty.gguf").write_bytes(b"")
    # Files that only the engine finds broken.
    (server.models / "renamed.gguf").write_bytes(whole.replace(b"output_norm.weight", b"outptt_norm.weight"))
    (server.models / "unheard.gguf").write_bytes(whole.replace(b"llama", b"zzama"))
    return server


@pytest.fixture
def full_server(with_broken_files: LemonbusServer) -> LemonbusServer:
    """:func:`with_broken_files` with tiny-chat loaded."""
    assert with_broken_files.client.post("/v1/load", {"model_name": CHAT}).status == 200
    return with_broken_files


def test_a_pinned_model_is_never_evicted(full_server: LemonbusServer) -> None:
    assert full_server.client.post("/v1/pin", {"model_name": CHAT, "pinned": True}).status == 200
    engine = full_server.engine_pid(CHAT)
    answer = full_server.client.chat(TALES)
    assert full_server.client.post("/v1/pin", {"model_name": CHAT, "pinned": False}).status == 200
    assert answer.status == 409
    assert answer.error["code"] == "all_pinned"
    assert CHAT in answer.error["detail"], "for administrators"
    assert full_server.engine_pid(CHAT) == engine
    assert full_server.client.chat(CHAT).status == 200


@pytest.mark.parametrize("model", ["truncated", "headless", "nonsense", "empty"])
def test_a_broken_file_evicts_no_model(full_server: LemonbusServer, model: str) -> None:
    engine = full_server.engine_pid(CHAT)
    answer = full_server.client.chat(f"extra.{model}")
    assert (answer.status, answer.error["code"]) == (500, "model_unusable"), answer
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    assert str(full_server.models) not in answer.error["message"], "no path of the machine"
    assert full_server.engine_pid(CHAT) == engine
    assert full_server.client.chat(CHAT).status == 200


@pytest.mark.parametrize(("model", "reason"), [("renamed", "broken"), ("unheard", "architecture, zzama")])
def test_a_file_that_the_engine_rejects_is_final(full_server: LemonbusServer, model: str, reason: str) -> None:
    for path, body in [
        ("/v1/load", {"model_name": f"extra.{model}"}),
        ("/v1/chat/completions", chat_body(f"extra.{model}")),
    ]:
        answer = full_server.client.post(path, body)
        assert (answer.status, answer.error["code"]) == (500, "model_unusable"), answer
        assert reason in answer.error["message"]
        assert str(full_server.models) not in answer.error["message"], "no path of the machine"
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers
    assert full_server.client.chat(CHAT).status == 200, "it comes back, for the next test too"


@pytest.mark.parametrize("flags", ["--port 1", "--model /etc/passwd", "-c 1", "--host=0.0.0.0", "--frobnicate"])
def test_a_forbidden_or_unknown_flag_evicts_no_model(full_server: LemonbusServer, flags: str) -> None:
    engine = full_server.engine_pid(CHAT)
    answer = full_server.client.post("/v1/load", {"model_name": TALES, "llamacpp_args": flags})
    assert answer.status == 400, answer
    assert flags.replace("=", " ").split(maxsplit=1)[0] in answer.error["message"]
    assert full_server.engine_pid(CHAT) == engine


def test_a_missing_engine_evicts_no_model(full_server: LemonbusServer) -> None:
    engine, program_of_system = full_server.engine_pid(CHAT), Path(full_server.settings.llama_server)
    removed = program_of_system.rename(program_of_system.with_suffix(".removed"))
    try:
        answer = full_server.client.post("/v1/load", {"model_name": TALES, "llamacpp_backend": "system"})
    finally:
        removed.rename(program_of_system)
    assert (answer.status, answer.error["code"]) == (409, "backend_not_installed"), answer
    assert full_server.engine_pid(CHAT) == engine


@pytest.fixture(scope="module")
def two_models_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """A server that may load two models, and whose engine of the backend ``system`` fails in a way that depends on the model."""
    engine = program_by_model(tmp_path_factory.mktemp("engine"), {"other-cpu": "illegal_instruction"}, "refuses_a_flag")
    server = start_module_server(
        "tiny-chat",
        "tiny-loop",
        "tiny-tale",
        max_loaded_models=2,
        llama_server=engine,
        backoff_first=20,
        gateway_workers=1,
    )
    (server.models / "other-cpu.gguf").symlink_to(server.models / "tiny-tale.gguf")
    return server


@pytest.mark.parametrize(
    ("model", "options"),
    [(TALES, "--swa-full"), ("extra.other-cpu", "")],
    ids=["refuses a flag", "illegal instruction"],
)
def test_a_failure_at_startup_evicts_one_model_once(
    two_models_server: LemonbusServer, model: str, options: str
) -> None:
    server = two_models_server
    assert server.client.chat(CHAT, max_tokens=1).status == 200
    assert server.client.chat(LOOP, max_tokens=1).status == 200
    server.assert_idle()  # otherwise the model whose last request was reported first would leave, not the least recently used one
    stays_here = server.engine_pid(LOOP)
    answer = server.client.post(
        "/v1/load", {"model_name": model, "llamacpp_backend": "system", "llamacpp_args": options}
    )
    assert answer.status == 503, answer
    if not options:
        assert "SIGILL" in answer.error["message"]
    assert server.engine_pid(LOOP) == stays_here, "at most the one that had to leave"

    assert server.client.chat(CHAT).status == 200, "and it may come back"
    came_back = server.engine_pid(CHAT)
    refused(server.client.chat(model), "backing_off")
    assert server.engine_pid(CHAT) == came_back, "once"
    assert server.engine_pid(LOOP) == stays_here


def test_a_running_model_survives_options_that_its_engine_refuses(two_models_server: LemonbusServer) -> None:
    server = two_models_server
    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    load = {"model_name": CHAT, "llamacpp_backend": "system", "llamacpp_args": "--swa-full"}
    answer = server.client.post("/v1/load", load)
    refused(answer, "load_failed")
    assert "keeps its former options" in answer.error["message"]
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert CHAT not in [each["model_name"] for each in server.state()["troubled"]]

    engine = server.engine_pid(CHAT)
    again = server.client.post("/v1/load", load)
    refused(again, "load_failed")
    assert again.error["message"] == answer.error["message"]
    assert 0 < int(again.headers["retry-after"]) <= 60
    assert server.engine_pid(CHAT) == engine, "it is not ended again and again for the same options"


@pytest.fixture(scope="module")
def short_backoff_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """A server whose engine of tiny-tale exits at once, for the first time at the server's start."""
    engine = program_by_model(tmp_path_factory.mktemp("engine"), {"tiny-tale": "exits_at_once"})
    return start_module_server(
        "tiny-chat",
        "tiny-tale",
        llamacpp_backend="system",
        llama_server=engine,
        backoff_first=1,
        breaker_deaths=3,
        load=[TALES, CHAT],
        gateway_workers=1,
    )


def troubled(server: LemonbusServer, model: str) -> list[dict[str, Any]]:
    return [each for each in server.state()["troubled"] if each["model_name"] == model]


def backs_off(server: LemonbusServer) -> HttpExchange | None:
    """Ask, and return the answer if the engine was not started because of the pause."""
    answer = server.client.chat(TALES)
    return answer if answer.error["code"] == "backing_off" else None


def test_backoff_grows_and_says_so(short_backoff_server: LemonbusServer) -> None:
    server = short_backoff_server
    event = "cannot load at start"
    (failed,) = wait_for(lambda: [line for line in server.lines if line["event"] == event], "it is in the log")
    assert "libggml.so: cannot open" in failed["detail"], "with the engine's last words"

    def refused_by_the_engine() -> HttpExchange | None:
        answer = server.client.chat(TALES)
        return answer if answer.error["code"] == "load_failed" else None

    first = wait_for(refused_by_the_engine, "after the pause, a request causes another attempt")
    assert "exited with code 3" in first.error["message"]
    assert "libggml.so: cannot open" in first.error["detail"], "an administrator sees the engine's last output"
    page = server.client.start("POST", "/v1/chat/completions", chat_body(TALES), {"Origin": "http://evil.example"})
    assert "libggml" not in page.finish().body.decode(), "a web page does not"
    refused(wait_for(lambda: backs_off(server), "it is not tried during the pause"), "backing_off")
    wait_for(lambda: server.client.chat(TALES).error["code"] == "load_failed", "it is tried again after the pause")
    assert troubled(server, TALES)[0]["detail"], "an administrator sees the engine's last words"
    pauses = [line["retry_in"] for line in server.lines if line["event"] == "load failed" and line["model"] == TALES]
    assert len(pauses) > 2
    assert pauses == sorted(set(pauses)), "each pause is longer than the one before"


def losses(server: LemonbusServer) -> int:
    """How often the supervisor has lost an engine of tiny-chat. It may be ready again before anyone looks at its state."""
    return sum(line["event"].startswith("engine lost") and line.get("model") == CHAT for line in server.lines)


def test_the_breaker_opens(short_backoff_server: LemonbusServer) -> None:
    server = short_backoff_server
    for _ in range(4):
        server.wait_loaded(CHAT)
        before = losses(server)
        os.kill(server.engine_pid(CHAT), signal.SIGSEGV)  # after SIGKILL, an idle engine would not be started again
        wait_for(lambda: losses(server) > before, "its death is known")  # noqa: B023 - called at once
    wait_for(lambda: troubled(server, CHAT), "the breaker is open")
    refused(server.client.chat(CHAT), "breaker_open")
    stays(lambda: server.engine_now(CHAT) is None, "no further engine is started", 1.0)
