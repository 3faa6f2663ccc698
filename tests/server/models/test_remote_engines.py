"""Models on other servers (``url`` in a section): a stand-in of another maker, a second lemonbus, failover, and their faults."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import ANSWER, ROOT
from tests.fake_engines.openai_answers import MODEL, VECTOR
from tests.support import processes
from tests.support.configuration_file import ConfiguredServer
from tests.support.models.tiny_models import link_models
from tests.support.ports import free_port
from tests.support.proxies import make_certificate, program
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

HI = [{"role": "user", "content": "Hi"}]
KEY = "remote-secret-key"
LOOP = "extra.tiny-loop"


class OtherServer:
    """A running stand-in."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}/v1"


@contextmanager
def stand_in(*arguments: str, port: int = 0) -> Iterator[OtherServer]:
    """Run ``tests.fake_engines.openai_server`` until the end of the block."""
    port = port or free_port()
    command = [sys.executable, "-m", "tests.fake_engines.openai_server", "--port", str(port), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"serving\n"
            yield OtherServer(process, port)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "requests"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.write_text(f"{KEY}\n")
    dead = f"http://127.0.0.1:{free_port()}/v1"
    with ExitStack() as stack:
        good = stack.enter_context(stand_in("--key", KEY, "--journal", str(journal)))
        keyed: dict[str, Any] = {"api_key_file": str(key_file)}
        models: dict[str, Any] = {
            "far": {"url": good.url, "aliases": ["gpt-4o"], "capabilities": ["tools"], **keyed},
            "far-vectors": {"url": good.url, "type": "embedding", **keyed},
            "from-variable": {"url": good.url, "api_key_env": "REMOTE_TEST_KEY"},
            "wrong-key": {"url": good.url},
            "dead": {"url": dead},
            "second": {"urls": [dead, good.url], **keyed},
        }
        for fault in ("limits", "fails", "cut", "cut_after_role", "hangs", "error_in_stream"):
            faulty = stack.enter_context(stand_in("--fault", fault))
            patience = 2 if fault == "hangs" else 60
            models[fault] = {"url": faulty.url, "timeout": patience}
            models[f"{fault}-then-good"] = {"urls": [faulty.url, good.url], "timeout": patience, **keyed}
        broken = [stack.enter_context(stand_in("--fault", "cut_after_role")).url for _ in range(3)]
        models["third"] = {"urls": [*broken[:2], good.url], **keyed}
        models["none"] = {"urls": broken}
        yield start_module_server(
            models=models, gateway_workers=1, max_loaded_models=1, environment={"REMOTE_TEST_KEY": KEY}
        )


def chat(server: LemonbusServer, model: str, **more: Any) -> Any:
    return server.client.post("/v1/chat/completions", {"model": model, "messages": HI, **more})


@pytest.mark.parametrize("model", ["far", "gpt-4o", "from-variable", "second"])
def test_a_model_elsewhere_answers(server: LemonbusServer, model: str) -> None:
    answer = chat(server, model)
    assert answer.status == 200, answer
    assert answer.json()["model"] == model
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER
    stream = server.client.start_chat(model, stream=True).finish()
    assert (stream.done, stream.text) == (True, ANSWER)


def test_it_needs_no_process_and_counts_in_no_limit(server: LemonbusServer) -> None:
    assert chat(server, "far").status == 200
    assert chat(server, "from-variable").status == 200
    vectors = server.client.post("/v1/embeddings", {"model": "far-vectors", "input": "Hi"})
    assert vectors.json()["data"][0]["embedding"] == VECTOR
    loaded = {each["model_name"]: each for each in server.health()["all_models_loaded"]}
    assert {"far", "from-variable", "far-vectors"} <= set(loaded)
    assert (loaded["far"]["device"], loaded["far"]["recipe"]) == ("remote", "remote")


def test_the_request_has_the_servers_key_and_never_the_clients(server: LemonbusServer, journal: Path) -> None:
    body = {"model": "far", "messages": HI}
    assert server.client.post("/v1/chat/completions", body, Authorization="Bearer of-the-client").status == 200
    sent = json.loads(journal.read_text().splitlines()[-1])
    assert sent["headers"]["authorization"] == f"Bearer {KEY}"
    assert json.loads(sent["body"])["model"] == MODEL
    assert "of-the-client" not in journal.read_text()
    assert KEY not in json.dumps(server.lines)
    assert "via" in sent["headers"]


def test_what_is_wrong_with_a_server_is_told(server: LemonbusServer) -> None:
    refused = chat(server, "dead")
    assert (refused.status, refused.error["code"]) == (503, "load_failed")
    assert "cannot be reached" in refused.error["message"]
    assert "refused" in refused.error["message"]
    again = chat(server, "dead")
    assert again.status == 503
    assert again.error["code"] == "load_failed" or int(again.headers["retry-after"]) >= 1
    key = chat(server, "wrong-key")
    assert (key.status, key.error["code"]) == (503, "load_failed")
    assert "does not accept the key" in key.error["message"]


def test_a_servers_own_errors_are_passed_on(server: LemonbusServer) -> None:
    limited = chat(server, "limits")
    assert (limited.status, limited.error["code"], limited.headers["retry-after"]) == (429, "rate_limit_exceeded", "7")
    failed = chat(server, "fails")
    assert (failed.status, failed.error["code"]) == (500, "backend_error")
    silent = chat(server, "hangs")
    assert silent.status == 500
    for model in ("cut", "error_in_stream"):
        stream = server.client.start_chat(model, stream=True).finish()
        assert not stream.done
        assert stream.error["model"] == model


@pytest.mark.parametrize("fault", ["limits", "fails", "hangs"])
def test_another_server_answers_before_the_first_token(server: LemonbusServer, fault: str) -> None:
    answer = chat(server, f"{fault}-then-good")
    assert answer.status == 200, answer
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER


def test_another_server_streams_if_the_first_has_only_sent_a_role(server: LemonbusServer) -> None:
    stream = server.client.start_chat("cut_after_role-then-good", stream=True).finish()
    assert (stream.done, stream.text) == (True, ANSWER)


def test_each_server_is_tried_before_the_first_token(server: LemonbusServer) -> None:
    stream = server.client.start_chat("third", stream=True).finish()
    assert (stream.done, stream.text) == (True, ANSWER)
    stream = server.client.start_chat("none", stream=True).finish()
    assert stream.error["code"] == "backend_connection_lost"


def test_a_stream_that_was_cut_is_not_continued_by_another_server(server: LemonbusServer) -> None:
    stream = server.client.start_chat("cut-then-good", stream=True).finish()
    assert not stream.done
    assert stream.error["code"] == "backend_connection_lost"


def test_a_server_that_comes_back_is_used_again(start_server: StartServer) -> None:
    port = free_port()
    server = start_server(models={"far": {"url": f"http://127.0.0.1:{port}/v1"}})
    with stand_in(port=port):
        wait_for(lambda: chat(server, "far").status == 200, "the server is reached")
    wait_for(lambda: chat(server, "far").status == 503, "it is missed")
    with stand_in(port=port):
        wait_for(lambda: chat(server, "far").status == 200, "the server is reached again")


def test_a_second_lemonbus(start_server: StartServer) -> None:
    other = start_server("tiny-loop", ctx_size=65_536)
    models = {"far": {"url": f"http://127.0.0.1:{other.port}/v1", "served_name": LOOP}}
    server = start_server(models=models)
    asked = {"messages": HI, "temperature": 0, "max_tokens": 8}
    own = other.client.post("/v1/chat/completions", {"model": LOOP, **asked}).json()
    far = server.client.post("/v1/chat/completions", {"model": "far", **asked}).json()
    assert far["choices"][0]["message"]["content"] == own["choices"][0]["message"]["content"]
    assert far["usage"]["completion_tokens"] == own["usage"]["completion_tokens"]
    stream = server.client.start_chat("far", stream=True, max_tokens=60_000)
    stream.until(lambda it: len(it.events) > 5)
    stream.hang_up()
    wait_for(lambda: not other.busy_slots(LOOP), "the other server's slot is free again")
    long = server.client.start_chat("far", stream=True, max_tokens=60_000)
    long.until(lambda it: len(it.events) > 5)
    processes.kill(other.engine_pid(LOOP))
    long.finish()
    assert not long.done
    assert long.error["model"] == "far"


def test_a_server_that_is_this_one_is_refused(start_server: StartServer) -> None:
    port = free_port()
    server = start_server(port=port, models={"far": {"url": f"http://127.0.0.1:{port}/v1", "served_name": "far"}})
    answer = chat(server, "far")
    assert answer.status == 508, answer
    assert answer.error["code"] == "loop_detected"


def test_all_models_of_another_lemonbus_by_a_prefix(start_server: StartServer) -> None:
    other = start_server("tiny-loop", "tiny-embed")
    remotes = {"gpu1": {"url": f"http://127.0.0.1:{other.port}/v1", "slots": 2, "refresh": 1}}
    server = start_server(remotes=remotes, models={f"gpu1/{LOOP}": {"aliases": ["loop"], "set": {"max_tokens": 3}}})

    def names() -> dict[str, Any]:
        return {each["id"]: each for each in server.client.get("/v1/models").json()["data"]}

    wait_for(lambda: {f"gpu1/{LOOP}", "gpu1/extra.tiny-embed"} <= set(names()), "its models are listed")
    assert "embeddings" in names()["gpu1/extra.tiny-embed"]["labels"]
    assert server.client.get("/v1/models/gpu1/extra.tiny-embed").json()["origin"] == "server"
    for model in (f"gpu1/{LOOP}", "loop"):
        answer = chat(server, model)
        assert (answer.status, answer.json()["model"], answer.json()["usage"]["completion_tokens"]) == (200, model, 3)
    vectors = server.client.post("/v1/embeddings", {"model": "gpu1/extra.tiny-embed", "input": "Hi"})
    assert len(vectors.json()["data"][0]["embedding"]) > 1
    assert chat(server, "gpu1/nothing-like-this").status == 404
    link_models(other.models, "tiny-chat")
    wait_for(lambda: "gpu1/extra.tiny-chat" in names(), "a new model is listed")


def test_a_server_that_is_away_keeps_its_last_list() -> None:
    port = free_port()
    section = f"[remotes.far]\nurl = 'http://127.0.0.1:{port}/v1'\nrefresh = 1\n"
    with ConfiguredServer(sections=section, gateway_workers=1) as server:

        def listed() -> bool:
            return f"far/{MODEL}" in {each["id"] for each in server.client.get("/v1/models").json()["data"]}

        def problems() -> str:
            return str(server.health().get("problems"))

        wait_for(lambda: "remotes.far: it cannot be reached" in problems(), "health says that it is away")
        assert "; none of its models are listed" in problems()
        assert not listed()
        with stand_in(port=port):
            wait_for(listed, "its model is listed")
            assert chat(server, f"far/{MODEL}").status == 200
            wait_for(lambda: "remotes.far" not in problems(), "health says nothing any more")
        wait_for(lambda: "remotes.far: it cannot be reached" in problems(), "health says that it is away again")
        assert "; its last list is used" in problems()
        supervisor = server.supervisor_pid
        processes.kill(supervisor)
        wait_for(lambda: server.supervisor_pid != supervisor, "another supervisor")
        wait_for(listed, "it knows the last list")
        refused = wait_for(
            lambda: (it := chat(server, f"far/{MODEL}")).status == 503 and it, "the model cannot be loaded"
        )
        assert refused.error["code"] in ("load_failed", "backing_off")
        server.configure("")
        server.reload()
        wait_for(lambda: not listed(), "it is gone with its section")


@pytest.mark.skipif(not program("openssl"), reason="openssl makes the certificate (apt-get install openssl)")
def test_an_encrypted_connection_needs_a_certificate_of_its_host(start_server: StartServer, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "localhost")
    with stand_in("--certificate", str(certificate), "--certificate-key", str(key)) as far:
        models = {
            "far": {"url": f"https://localhost:{far.port}/v1", "slots": 4},
            "of-another-name": {"url": f"https://127.0.0.1:{far.port}/v1"},
            "not-encrypted": {"url": far.url},
            "unknown": {"url": f"https://nowhere.invalid:{far.port}/v1"},
        }
        trusting = start_server(models=models, environment={"SSL_CERT_FILE": str(certificate)})
        for _ in range(2):
            assert chat(trusting, "far").json()["choices"][0]["message"]["content"] == ANSWER
            stream = trusting.client.start_chat("far", stream=True).finish()
            assert (stream.done, stream.text) == (True, ANSWER)
        long = [{"role": "user", "content": "a b, " * 400_000}]
        assert trusting.client.post("/v1/chat/completions", {"model": "far", "messages": long}).status == 200
        for model, reason in (("of-another-name", "certificate"), ("unknown", "was not found"), ("not-encrypted", "")):
            refused = chat(trusting, model)
            assert (refused.status, refused.error["code"]) == (503, "load_failed")
            assert reason in refused.error["message"]
        refused = chat(start_server(models=models), "far")
        assert (refused.status, refused.error["code"]) == (503, "load_failed")
        assert "certificate" in refused.error["message"]
