"""``lemonbus reload`` under load: changes take effect as announced, and nothing else changes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from protocol.config.settings import Settings
from tests.fake_engines.generation.slow_generation import text_of
from tests.fake_engines.llama_server import program
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.configuration_file import ConfiguredServer
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT
from tests.support.ports import free_port
from tests.support.waiting import wait_for

CHAT, TALES, LOOP = "extra.tiny-chat", "extra.tiny-tale", "extra.tiny-loop"
TOKENS = 9
"""Tokens of a stream; its engine sends more than three only when it has been stopped and continued."""
PAUSE_S = 0.05
"""Seconds between the requests of a client, to leave the processors to the reload."""


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredServer]:
    engine = program(tmp_path_factory.mktemp("engine"), "pauses_mid_stream")
    with ConfiguredServer(
        *("tiny-chat", "tiny-tale", "tiny-loop"),
        gateway_workers=1,
        slots=2,
        load=[CHAT, TALES],
        llama_server=engine,
    ) as server:
        load = {"model_name": LOOP, "llamacpp_backend": "system"}
        assert server.client.post("/v1/load", load).status == 200
        yield server


@pytest.fixture
def server(module_server: ConfiguredServer) -> ConfiguredServer:
    """The server as its supervisor was started, with its three models loaded."""
    server, usual = module_server, Settings()
    changed_by_tests = ("max_loaded_models", "queue_requests", "mullama_metrics")
    server.configure(sections="", **{name: getattr(usual, name) for name in changed_by_tests})
    engine, supervisor = server.engine_now(CHAT), server.supervisor_pid
    changed = effects(server.reload())
    if changed:
        wait_taken_over(server, supervisor)
    if ["the model is reloaded when idle"] in changed.values():
        wait_for(lambda: server.engine_now(CHAT) != engine, "its engine is another one")
    server.wait_loaded(CHAT, TALES, LOOP)
    return server


@contextmanager
def requests_that_all_succeed(server: ConfiguredServer) -> Iterator[None]:
    """Send requests all the time; none may fail."""
    answered: list[tuple[int, str]] = []
    end = threading.Event()

    def ask(model: str) -> None:
        while not end.wait(PAUSE_S):
            answer = server.client.chat(model)
            answered.append((answer.status, answer.text))

    threads = [threading.Thread(target=ask, args=(model,)) for model in (CHAT, TALES)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(answered) >= 4, "requests are answered")
        yield
        before = len(answered)
        wait_for(lambda: len(answered) >= before + 4, "requests are answered afterwards")
    finally:
        end.set()
        for thread in threads:
            thread.join(30)
    assert {*answered} == {(200, CHAT_TEXT), (200, TALE_TEXT)}


@contextmanager
def running_stream(server: ConfiguredServer) -> Iterator[HttpExchange]:
    """A stream that goes on after the block: its engine is stopped until then."""
    engine = server.engine_pid(LOOP)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=TOKENS)
    stream.until(lambda it: len(it.events) > 2)
    with processes.stopped(engine):
        yield stream
        resumed = time.monotonic()
    assert stream.finish(60).done
    assert stream.events[-1].at > resumed
    assert stream.text == text_of(TOKENS)


def masters(server: ConfiguredServer) -> set[int]:
    found = {process.pid: process for process in server.process_tree() if process.runs("gateway")}
    return {pid for pid, process in found.items() if process.parent not in found}


def effects(answer: Any) -> dict[str, list[str]]:
    return {change["setting"]: change["effects"] for change in answer["changes"]}


def wait_taken_over(server: ConfiguredServer, predecessor: int) -> None:
    wait_for(lambda: server.supervisor_pid != predecessor, "another supervisor runs")
    wait_for(lambda: server.health()["status"] == "ok", "it has taken over")


def test_settings_of_the_supervisor_take_effect_at_once_and_nothing_is_touched(server: ConfiguredServer) -> None:
    engines = [server.engine_pid(model) for model in (CHAT, TALES)]
    gateways, supervisor = masters(server), server.supervisor_pid
    with running_stream(server), requests_that_all_succeed(server):
        server.configure(
            max_loaded_models=3,
            queue_requests=7,
            mullama_metrics=True,
            sections=f'[models."{CHAT}"]\nttl = 500\n[models."{TALES}"]\npin = true\n',
        )
        announced = effects(server.reload(dry_run=True))
        assert server.supervisor_pid == supervisor, "a dry run changes nothing"
        assert effects(server.reload()) == announced
        assert announced == {
            "max_loaded_models": ["now"],
            "queue_requests": ["now"],
            "mullama_metrics": ["now"],
            f'models."{CHAT}".ttl': ["now"],
            f'models."{TALES}".pin': ["now"],
        }
        wait_taken_over(server, supervisor)
    assert [server.engine_pid(model) for model in (CHAT, TALES)] == engines
    assert masters(server) == gateways
    loaded = {each["model_name"]: each for each in server.health()["all_models_loaded"]}
    assert (loaded[CHAT]["pinned"], loaded[CHAT]["ttl"], loaded[TALES]["pinned"]) == (False, 500, True)
    assert server.health()["max_models"]["llm"] == 3
    metrics = server.client.get("/metrics").body
    assert b"lemonbus_models_loaded" in metrics
    assert b"\nmullama_info" in metrics, "Mullama's names are switched on"


def test_requested_changes_are_not_warnings(server: ConfiguredServer) -> None:
    seen, supervisor = len(server.lines), server.supervisor_pid
    server.configure(queue_requests=9)
    server.reload()
    wait_taken_over(server, supervisor)
    ended = "the supervisor has ended; requests wait for the next one"
    wait_for(lambda: any(line["event"] == ended for line in server.lines[seen:]), "the gateway has noticed")
    assert [line for line in server.lines[seen:] if line["level"] in ("warning", "error")] == []


def test_gateways_are_replaced_gracefully(server: ConfiguredServer) -> None:
    (former,) = masters(server)
    engines = [server.engine_pid(model) for model in (CHAT, TALES)]
    with running_stream(server) as stream, requests_that_all_succeed(server):
        holder = server.gateway_of(stream)
        server.configure(body_limit=2000)
        assert effects(server.reload()) == {"body_limit": ["gateways restart gracefully"]}
        wait_for(lambda: masters(server) - {former}, "another gateway runs")
        wait_for(lambda: server.client.post("/v1/chat/completions", b"{" + b" " * 3000).status == 413, "new limit")
        assert holder in {process.pid for process in server.process_tree()}, "the stream's gateway lives while it runs"
    wait_for(lambda: former not in masters(server), "the former gateway has ended")
    gone = wait_for(
        lambda: [
            line for line in server.lines if line["event"] == "gateway worker gone" and line["gateway_pid"] == holder
        ],
        "its end is logged",
    )
    assert [line["level"] for line in gone] == ["info"], "nothing went wrong"
    assert [server.engine_pid(model) for model in (CHAT, TALES)] == engines


def test_the_server_moves_to_another_port(server: ConfiguredServer) -> None:
    former, engine = server.client.port, server.engine_pid(CHAT)
    moved = free_port()
    with running_stream(server):
        file = server.file.read_text()
        server.file.write_text(file.replace(f"port = {former}", f"port = {moved}"))
        assert effects(server.reload()) == {"port": ["a new listener is opened", "gateways restart gracefully"]}
        server.configure(port=moved)
        wait_for(server.listens, "the new port is open")
        assert server.client.chat(CHAT).text == CHAT_TEXT
        assert server.engine_pid(CHAT) == engine


def test_the_server_opens_its_port_to_the_network_and_closes_it_again(server: ConfiguredServer) -> None:
    """Two programs that do not know each other could not listen at the two addresses."""
    for host in ("0.0.0.0", "127.0.0.1"):
        former = masters(server)
        with running_stream(server):
            server.configure(host=host, allow_remote=True)
            for dry_run in (True, False):
                changed = effects(server.reload(dry_run=dry_run))
                assert changed["host"] == ["a new listener is opened", "gateways restart gracefully"]
            wait_for(lambda former=former: masters(server) - former, "another gateway is started")
            assert server.client.chat(CHAT).text == CHAT_TEXT, "it answers, or keeps the connection waiting"
            listeners = {each.laddr.ip for each in listening(server)}
            assert listeners == {host}
    server.configure(allow_remote=False)
    server.reload()


def listening(server: ConfiguredServer) -> list[Any]:
    return [
        each
        for each in psutil.net_connections("tcp4")
        if each.status == "LISTEN" and each.laddr.port == server.client.port
    ]


def test_request_rules_and_names_of_a_model_take_effect_at_once(server: ConfiguredServer) -> None:
    def tokens(model: str) -> int:
        answer = server.client.chat(model, patience=60.0, max_tokens=3)
        return int(answer.json()["usage"]["completion_tokens"]) if answer.status == 200 else 0

    assert tokens(LOOP) == 3
    engine = server.engine_pid(LOOP)
    server.configure(sections=f'[models."{LOOP}"]\nset = {{ max_tokens = 2 }}\naliases = ["small"]\n')
    assert effects(server.reload()) == {f'models."{LOOP}".{key}': ["now"] for key in ("set", "aliases")}
    wait_for(lambda: tokens("small") == 2, "rules and names are those of the file")
    server.file.write_text(server.file.read_text() + "options = { slots = -1 }\n")
    refused = server.client.post("/internal/reload", {})
    assert refused.status == 400
    assert f'models."{LOOP}".options.slots' in refused.json()["message"]
    server.configure(sections="")
    server.reload()
    wait_for(lambda: tokens("small") == 0, "the alias is gone")
    assert (tokens(LOOP), server.engine_pid(LOOP)) == (3, engine)


def test_a_broken_file_is_refused_whole_by_call_and_by_signal(server: ConfiguredServer) -> None:
    supervisor, before = server.supervisor_pid, len(server.lines)
    text = server.file.read_text()
    server.file.write_text(text + "max_loaded_models = 9\nports = 1\n")
    answer = server.client.post("/internal/reload", {})
    assert answer.status == 400
    assert "unknown setting 'ports'" in answer.error["message"]
    server.signal(signal.SIGHUP)

    def complaints() -> list[Any]:
        return [line for line in server.lines[before:] if line["event"].startswith("configuration not reloaded")]

    wait_for(lambda: len(complaints()) == 2, "both refusals are logged")
    server.file.unlink()
    assert "no such configuration file" in server.client.post("/internal/reload", {}).error["message"]
    assert server.supervisor_pid == supervisor
    server.file.write_text(text + "queue_requests = 77\n")
    server.signal(signal.SIGHUP)
    wait_taken_over(server, supervisor)
    changed = [line for line in server.lines[before:] if line["event"] == "setting changed"]
    assert [(line["setting"], line["new"]) for line in changed] == [("queue_requests", 77)]


def test_a_broken_file_right_after_a_good_reload_is_refused_with_its_line(server: ConfiguredServer) -> None:
    for number in range(71, 75):
        server.configure(queue_requests=number)
        server.reload()
        good = server.file.read_text()
        server.file.write_text(f"ports = 1\n{good}")
        answer = server.client.post("/internal/reload", {})
        server.file.write_text(good)
        assert answer.status == 400, answer
        assert f"{server.file}:1: unknown setting 'ports'" in answer.error["message"]


@pytest.mark.parametrize("body", [{"dry_run": 1}, {"dryrun": True}])
def test_a_wrong_request_reloads_nothing(module_server: ConfiguredServer, body: dict[str, Any]) -> None:
    assert module_server.client.post("/internal/reload", body).status == 400


def test_a_model_whose_section_changed_is_reloaded_when_idle_and_no_other(server: ConfiguredServer) -> None:
    engine, other = server.engine_pid(CHAT), server.engine_pid(TALES)
    with requests_that_all_succeed(server):
        server.configure(sections=f'[models."{CHAT}"]\noptions = {{ ctx_size = 2048 }}\nenv = {{ SOURNESS = "9" }}\n')
        (options, variables) = server.reload()["changes"]
        for change in (options, variables):
            assert (change["effects"], change["models"]) == (["the model is reloaded when idle"], [CHAT])
        assert variables["new"] == {"SOURNESS": "********"}
        wait_for(lambda: server.engine_pid(CHAT) != engine, "its engine is another one")
        server.wait_loaded(CHAT)
    assert b"SOURNESS=9" in Path(f"/proc/{server.engine_pid(CHAT)}/environ").read_bytes()
    assert server.engine_pid(TALES) == other
