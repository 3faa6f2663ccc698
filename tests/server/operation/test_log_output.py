"""The log as an operator reads it: few lines while all is well, and clear ones about faults."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"


OPERATORS = ("info", "warning", "error")
"""Levels that an operator sees with the default log level."""


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    """A server that logs everything, for tests that recognize their own requests. Each test kills one kind of its

    processes, which is replaced before the test ends.
    """
    return start_module_server("tiny-loop", load=[LOOP], log_level="trace", ctx_size=65_536)


def lines_of(server: LemonbusServer, *levels: str, after: int = 0) -> list[dict[str, Any]]:
    return [line for line in server.lines[after:] if line["level"] in levels]


def info_events(server: LemonbusServer) -> list[str]:
    """The events of the log in their order, without those of monitors and of the engine."""
    return [line["event"] for line in lines_of(server, *OPERATORS)]


def line_of(server: LemonbusServer, event: str, **fields: str) -> dict[str, Any]:
    """Wait for a line and return it."""

    def found() -> list[dict[str, Any]]:
        return [line for line in server.lines if line["event"] == event and line.items() >= fields.items()]

    wait_for(lambda: bool(found()), f"there is a line {event!r} with {fields}")
    return found()[0]


def operators_line_of(server: LemonbusServer, event: str, **fields: str) -> dict[str, Any]:
    """Wait for a line that an operator sees and return it."""
    line = line_of(server, event, **fields)
    assert line["level"] in OPERATORS
    return line


def test_normal_operation_logs_few_lines(start_server: StartServer) -> None:
    server = start_server("tiny-chat", "tiny-loop", max_loaded_models=1, log_level="info", gateway_workers=2)
    for model in (CHAT, LOOP):
        assert server.client.chat(model, max_tokens=3).status == 200
        line_of(server, "request", model=model)  # a gateway writes it after the answer
    assert server.client.get("/v1/health").status == 200
    server.stop()
    # When these are written depends on other processes.
    events, at_any_time = info_events(server), ("gateway worker up", "model evicted")
    assert sorted(event for event in events if event in at_any_time) == ["gateway worker up"] * 2 + ["model evicted"]
    reported = [event for event in events if event not in at_any_time]
    up, down = reported[:9], reported[9:]
    assert up == [
        "starting",
        *("engine started", "model ready", "request"),
        *("model drains", "worker gone", "engine started", "model ready", "request"),
    ]
    assert down[:2] == ["stopping", "model drains"]
    assert sorted(down[2:-1]) == ["gateway worker gone"] * 2 + ["worker gone"] * 2
    assert down[-1] == "stopped"
    assert not lines_of(server, "warning", "error", "critical"), "nothing went wrong"


def test_shutdown_logs_no_warning_even_if_a_worker_has_just_started(start_server: StartServer) -> None:
    server = start_server("tiny-chat", log_level="info", wait=False)
    line_of(server, "starting")
    server.stop()
    assert not lines_of(server, "warning", "error", "critical")


def test_warnings_at_the_start_kill_hup_and_ctrl_c(start_server: StartServer) -> None:
    # SIGHUP asks for a reload, and there is nothing to read.
    handed_over = {"LEMONBUS_WARNINGS": '["LEMONBUS_PROT is not a setting"]', "LEMONBUS_CONFIG": "/nowhere.toml"}
    server = start_server("tiny-chat", log_level="info", load=[CHAT], environment=handed_over)
    assert (
        line_of(server, "the configuration has a problem", reason="LEMONBUS_PROT is not a setting")["level"]
        == "warning"
    )
    server.wait_loaded(CHAT)
    before = wait_for(lambda: lasting_processes(server), "all processes that stay have started")
    for pid in before:
        os.kill(pid, signal.SIGHUP)
    line_of(server, "configuration not reloaded: it stays as it was", process="supervisor")
    assert server.client.chat(CHAT).status == 200
    assert lasting_processes(server) == before
    server.signal(signal.SIGINT)
    assert server.wait_exit() == 0
    assert info_events(server)[-1] == "stopped"
    server.assert_nothing_left()


def lasting_processes(server: LemonbusServer) -> set[int]:
    """The processes without jobs, which come and go; nothing until there is an engine, its worker and a spare one."""
    found = [process for process in server.process_tree() if not process.mentions("workers.jobs.")]
    workers = {process.pid for process in found if process.runs("workers")}
    engines = [process for process in found if process.parent in workers]
    return {process.pid for process in found} if len(workers) == 2 and len(engines) == 1 else set()


def test_an_engines_death_names_the_model_and_each_request(server: LemonbusServer) -> None:
    server.wait_loaded(LOOP)
    engine = server.engine_pid(LOOP)
    stream = server.client.start_chat(LOOP, {"X-Request-ID": "unlucky"}, stream=True)
    stream.until(lambda exchange: len(exchange.chunks) > 5)
    processes.kill(engine)
    stream.finish()
    died = line_of(server, "engine died", process="worker")
    assert (died["level"], died["engine_pid"], died["model"]) == ("error", engine, LOOP)
    lost = line_of(server, "request lost", request_id="unlucky")
    assert (lost["level"], lost["model"], lost["code"]) == ("warning", LOOP, "backend_died")
    reported = line_of(server, "request", request_id="unlucky")
    assert (reported["level"], reported["model"], reported["code"]) == ("warning", LOOP, "backend_died")
    assert operators_line_of(server, "engine lost, it is started again")["model"] == LOOP
    server.wait_loaded(LOOP)


def test_a_gateways_death_leaves_the_names_of_its_requests(server: LemonbusServer) -> None:
    server.wait_loaded(LOOP)
    stream = server.client.start_chat(LOOP, {"X-Request-ID": "orphan"}, stream=True)
    stream.until(lambda exchange: len(exchange.chunks) > 5)
    gateway = server.gateway_of(stream)
    assert gateway in [each["pid"] for each in server.state()["processes"] if each["role"] == "gateway"]
    processes.kill(gateway)
    assert operators_line_of(server, "request stopped", request_id="orphan")["code"] == "gateway_gone"
    assert operators_line_of(server, "gateway worker gone")["gateway_pid"] == gateway
    wait_for(lambda: len([line for line in server.lines if line["event"] == "gateway worker up"]) > 2, "it is back")


def test_mistakes_of_callers_are_not_warnings(server: LemonbusServer) -> None:
    before = len(server.lines)
    assert server.client.chat(LOOP, temperature="hot").status == 400
    assert server.client.chat("nobody").status == 404
    assert server.client.chat(LOOP, messages=[{"role": "user", "content": "y" * 100_000}]).status == 400
    line_of(server, "request", code="context_length_exceeded")
    assert "temperature" in line_of(server, "request", code="invalid_request")["reason"]
    assert not lines_of(server, "warning", "error", after=before)


def test_the_line_of_a_request_has_the_models_registered_name(server: LemonbusServer) -> None:
    for label, model in (("a1", f"{LOOP}:latest"), ("a2", "")):
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, **({"model": model} if model else {})}
        assert server.client.post("/v1/chat/completions", body, X_Request_ID=label).status == 200
        assert line_of(server, "request", request_id=label)["model"] == LOOP
        answered = line_of(server, "answered", request_id=label)
        assert (answered["output_tokens"], answered["first_token_s"] > 0) == (5, True)
        assert answered["tokens_per_second"] > 0
        assert line_of(server, "granted", request_id=label)["process"] == "supervisor"


def test_only_trace_shows_prompts_and_shows_them_once(server: LemonbusServer) -> None:
    body = {"model": LOOP, "messages": [{"role": "user", "content": "in-the-open"}], "max_tokens": 5}
    assert server.client.post("/v1/chat/completions", body, X_Request_ID="shown").status == 200
    line_of(server, "request", request_id="shown")
    shown = [line for line in server.lines if "in-the-open" in str(line)]
    assert [line["level"] for line in shown] == ["trace"]
