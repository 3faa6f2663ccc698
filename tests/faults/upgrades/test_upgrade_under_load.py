"""Another release is installed under load and takes over: no request fails, and no model is loaded again. Several

upgrades in a row, without load: ``tests/server/operation/test_keeper.py``.
"""

from __future__ import annotations

from functools import partial

import pytest

from protocol import RELEASE
from tests.conftest import StartServer
from tests.fake_engines.generation.slow_generation import text_of
from tests.fake_engines.llama_server import program
from tests.faults.repeating_clients import Clients, asking
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.installed_code import InstalledCode
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP, CHAT = "extra.tiny-loop", "extra.tiny-chat"


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> InstalledCode:
    return InstalledCode(tmp_path_factory.mktemp("code"))


@pytest.fixture(scope="module")
def server(
    start_module_server: StartServer, code: InstalledCode, tmp_path_factory: pytest.TempPathFactory
) -> LemonbusServer:
    """A server whose engine of tiny-loop sends a word every tenth of a second: many streams that leave the processors idle."""
    engine = program(tmp_path_factory.mktemp("engine"), "slow_generation")
    started = start_module_server("tiny-loop", "tiny-chat", root=code.folder, slots=8, llama_server=engine)
    for load in ({"model_name": LOOP, "llamacpp_backend": "system"}, {"model_name": CHAT}):
        assert started.client.post("/v1/load", load).status == 200
    return started


def upgrade(server: LemonbusServer) -> HttpExchange:
    return server.client.start("POST", "/internal/upgrade", {}).finish(60)


def start_clients(clients: Clients) -> None:
    """More than the slots of tiny-loop's engine, so that some streams begin and some end at any time."""
    clients.start(LOOP, 12, text_of(8), max_tokens=8)
    clients.start(CHAT, 3, CHAT_TEXT)
    wait_for(lambda: min(clients.answers[model] for model in (LOOP, CHAT)) > 0, "requests are answered before", 60)


def test_a_newer_release_takes_over_and_no_request_fails(server: LemonbusServer, code: InstalledCode) -> None:
    engines = {model: server.engine_pid(model) for model in (LOOP, CHAT)}
    gateways = server.gateway_pids()
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=30)
    stream.until(lambda it: len(it.events) > 2)
    with asking(server) as clients:
        start_clients(clients)
        release = f"{RELEASE}.1"
        code.install(release=release)
        answer = upgrade(server)
        assert (answer.status, answer.json().get("release")) == (200, release), answer
        wait_for(lambda: server.health().get("version") == release, "it answers", 60)
        before = clients.answers.copy()
        for model in (LOOP, CHAT):
            wait_for(partial(answered, clients, model, before[model] + 4), "afterwards", 60)
        wait_ended(server, gateways)
    assert clients.failures == []
    assert stream.finish(60).text == text_of(30)
    assert stream.done
    assert {model: server.engine_pid(model) for model in (LOOP, CHAT)} == engines
    server.assert_idle()


def wait_ended(server: LemonbusServer, gateways: list[int]) -> None:
    """Wait until the former gateways are gone and all new ones are there, which start one after the other."""
    wait_for(
        lambda: len({*server.gateway_pids()} - {*gateways}) == server.settings.gateway_workers,
        "all gateways of the new release are there",
        60,
    )
    wait_for(
        lambda: not {*gateways} & {each.pid for each in server.process_tree()},
        "the gateways of the former release end when their last stream has ended",
        60,
    )


def answered(clients: Clients, model: str, more_than: int) -> bool:
    return clients.answers[model] > more_than


def test_an_upgrade_whose_order_was_lost_with_the_supervisor_is_carried_out_by_the_next_one(
    server: LemonbusServer, code: InstalledCode
) -> None:
    engine, gateways = server.engine_pid(CHAT), server.gateway_pids()
    running, release = server.health()["version"], f"{RELEASE}.3"
    code.install(release=release)
    with processes.stopped(server.supervisor_pid):
        asked = server.client.start("POST", "/internal/upgrade", {})
        for _ in range(20):  # the gateways answer, and have sent the order meanwhile
            assert server.client.get("/live").status == 200
        server.kill_supervisor()
    answer = asked.finish(60)
    assert (answer.status, answer.json()["release"], answer.json()["former_release"]) == (200, release, running)
    assert server.health()["version"] == release
    assert server.engine_pid(CHAT) == engine
    wait_ended(server, gateways)


def test_a_release_that_cannot_start_is_reported_and_no_request_fails(
    server: LemonbusServer, code: InstalledCode
) -> None:
    gateways, running = server.gateway_pids(), server.health()["version"]
    main = "supervisor/lifecycle/main.py"
    with asking(server) as clients:
        start_clients(clients)
        code.install(release=f"{RELEASE}.9")
        whole = code.append(main, "import nothing_of_that_name\n")
        answer = upgrade(server)
    code.replace(main, whole)
    assert clients.failures == []
    assert answer.status == 500
    assert f"release {running} goes on" in answer.error["message"]
    assert [line["reason"] for line in server.lines if line["event"] == "not upgraded: this release goes on"]
    assert server.gateway_pids() == gateways


def test_other_files_with_the_same_version_number_take_over_and_the_same_files_change_nothing(
    server: LemonbusServer, code: InstalledCode
) -> None:
    """An updated checkout is another release with the same number, so the gateways are also replaced."""
    running, gateways, engine = server.health()["version"], server.gateway_pids(), server.engine_pid(CHAT)
    code.install(release=running)
    code.append("gateway/app.py", "\n")
    answer = upgrade(server)
    assert (answer.status, answer.json()["release"], answer.json()["former_release"]) == (200, running, running)
    wait_ended(server, gateways)
    gateways = server.gateway_pids()
    assert upgrade(server).status == 200
    assert server.gateway_pids() == gateways
    assert server.engine_pid(CHAT) == engine
