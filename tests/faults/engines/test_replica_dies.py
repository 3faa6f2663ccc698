"""A model with two engines, which are killed or loaded again under clients, as is the supervisor: the other engine serves meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.faults.repeating_clients import Clients
from tests.faults.supervisors.recoveries import kill_supervisor, present_health
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-chat", models={CHAT: {"replicas": 2}}, breaker_deaths=1000)


@pytest.fixture
def server(module_server: LemonbusServer) -> LemonbusServer:
    """The server with both engines ready."""
    assert module_server.client.post("/v1/load", {"model_name": CHAT, "ctx_size": 8192}).status == 200
    wait_both_ready(module_server)
    return module_server


def replicas(server: LemonbusServer) -> list[dict[str, Any]]:
    """Both engines, as health shows them; empty while the model is not loaded."""
    models = present_health(server)["lemonbus"]["models"]
    return next((each["replicas"] for each in models if each["model_name"] == CHAT), [])


def wait_both_ready(server: LemonbusServer, *before: int) -> list[dict[str, Any]]:
    """Wait until two engines are ready that are none of those ``before``; return them."""

    def ready() -> list[dict[str, Any]]:
        found = replicas(server)
        pids = [each["engine_pid"] for each in found if each["state"] == "ready"]
        return found if len(pids) == 2 and not {*pids} & {*before} else []

    return wait_for(ready, "both engines are ready", 60.0)


class ChatClients:
    """The answers that 8 clients get while a test breaks something."""

    def __init__(self, server: LemonbusServer) -> None:
        self.clients = Clients(server)
        self.clients.start(CHAT, 8, max_tokens=4)

    def wait_for_more(self, count: int = 24) -> None:
        """Wait until the clients have ``count`` more whole answers."""
        before = self.clients.answers[CHAT]
        wait_for(lambda: self.clients.answers[CHAT] >= before + count, "clients are answered", 60.0)


@pytest.fixture
def answers(server: LemonbusServer) -> Iterator[ChatClients]:
    found = ChatClients(server)
    yield found
    found.clients.stop()


def test_both_engines_work_for_the_clients(server: LemonbusServer, answers: ChatClients) -> None:
    workers = {each["worker"] for each in replicas(server)}
    wait_for(lambda: workers <= granted(server), "both have worked", 60.0)
    answers.clients.stop()
    assert answers.clients.failures == []


def granted(server: LemonbusServer) -> set[str]:
    """The workers that have got requests."""
    return {line["worker"] for line in server.lines if line["event"] == "granted"}


def test_each_engine_is_seen_under_the_name_of_their_model(server: LemonbusServer) -> None:
    overview = server.client.get("/internal/overview").json()
    assert [each["number"] for each in overview["models"][CHAT]["replicas"]] == [1, 2]
    assert overview["models"][CHAT]["slots"] == sum(each["slots"] for each in replicas(server))
    memory = series(server, "lemonbus_engine_memory_bytes")
    assert memory == [f'lemonbus_engine_memory_bytes{{model="{CHAT}",replica="{number}"}}' for number in (1, 2)]

    def of_engines() -> bool:  # an engine that answers too late is left out
        found = sorted(series(server, "llamacpp_requests_processing"))
        return [f'replica="{number}"' in line for number, line in enumerate(found, 1)] == [True, True]

    wait_for(of_engines, "the metrics of both engines")


def series(server: LemonbusServer, family: str) -> list[str]:
    """The series of a family, as `/metrics` has them now."""
    lines = server.client.get("/metrics", 40.0).body.decode().splitlines()
    return [line.split(" ")[0] for line in lines if line.startswith(f"{family}{{")]


def kill_engine(replica: dict[str, Any]) -> None:
    processes.kill(replica["engine_pid"])


def kill_worker(replica: dict[str, Any]) -> None:
    processes.kill(replica["worker_pid"])


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("kill", [kill_engine, kill_worker])
def test_the_other_one_serves_while_one_is_started_again(
    server: LemonbusServer, answers: ChatClients, kill: Callable[[dict[str, Any]], None], number: int
) -> None:
    answers.wait_for_more()
    one = next(each for each in replicas(server) if each["number"] == number)
    kill(one)
    answers.wait_for_more()
    wait_both_ready(server, one["engine_pid"])
    answers.wait_for_more()
    answers.clients.stop()
    assert len(answers.clients.failures) <= one["slots"], "a request failed whose answer had not begun there"


def test_other_options_are_loaded_into_one_after_the_other(server: LemonbusServer, answers: ChatClients) -> None:
    before = [each["engine_pid"] for each in replicas(server)]
    answers.wait_for_more()
    assert server.client.post("/v1/load", {"model_name": CHAT, "ctx_size": 4096}).status == 200
    wait_both_ready(server, *before)
    answers.wait_for_more()
    answers.clients.stop()
    assert answers.clients.failures == []


def test_an_unload_is_answered_when_both_are_gone(server: LemonbusServer) -> None:
    before = [each["engine_pid"] for each in replicas(server)]
    assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    assert [pid for pid in before if processes.alive(pid)] == []
    assert replicas(server) == []


def test_the_next_supervisor_takes_both_engines_over(server: LemonbusServer, answers: ChatClients) -> None:
    before = {each["number"]: each["engine_pid"] for each in replicas(server)}
    answers.wait_for_more()
    kill_supervisor(server)
    answers.wait_for_more()
    assert {each["number"]: each["engine_pid"] for each in wait_both_ready(server)} == before
    answers.clients.stop()
    assert answers.clients.failures == []
