"""A second server on one port or directory prints one clear line, leftovers of a dead server are taken over, and request ids are only labels."""

from __future__ import annotations

from tests.conftest import StartServer
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.models.tiny_models import CHAT_TEXT, TALE_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, TALES, LOOP = "extra.tiny-chat", "extra.tiny-tale", "extra.tiny-loop"


def exits_with_one_line(second: LemonbusServer) -> str:
    try:
        assert second.wait_exit() == 1
        assert not second.process_tree() or second.runtime.exists()
        assert len(second.unread) == 1, second.unread
        return second.unread[0]
    finally:
        second.clean()


def test_a_second_server_on_the_runtime_directory(shared_server: LemonbusServer) -> None:
    line = exits_with_one_line(LemonbusServer("tiny-chat", wait=False, runtime=shared_server.runtime))
    assert f"pid {shared_server.keeper_pid}" in line
    assert str(shared_server.runtime) in line
    assert shared_server.client.chat(CHAT).text == CHAT_TEXT, "the first is unharmed"


def test_a_second_server_on_the_state_directory(start_server: StartServer) -> None:
    first = start_server("tiny-chat")
    state = first.settings.state_dir
    for _ in range(2):
        line = exits_with_one_line(LemonbusServer("tiny-chat", wait=False, state_dir=state))
        assert f"pid {first.keeper_pid}" in line
        assert f"state_dir {state}" in line
        kill_supervisor(first)  # the lock is the server's, not the supervisor's
    assert first.client.chat(CHAT).text == CHAT_TEXT
    first.kill_keeper()
    second = start_server("tiny-chat", state_dir=state)
    assert second.client.chat(CHAT).text == CHAT_TEXT, "the lock ends with the keeper"


def test_a_second_server_on_the_port(shared_server: LemonbusServer) -> None:
    line = exits_with_one_line(LemonbusServer("tiny-chat", wait=False, port=shared_server.port))
    assert str(shared_server.port) in line
    assert shared_server.client.chat(CHAT).text == CHAT_TEXT, "the first is unharmed"


def test_a_directory_in_which_a_dead_server_left_files_and_a_stopped_process(start_server: StartServer) -> None:
    first = start_server("tiny-chat", load=[CHAT], grace=0.5)
    first.wait_loaded(CHAT)
    worker = first.worker_pid(CHAT)
    with processes.stopped(worker):
        first.kill_keeper()
        assert any(first.runtime.iterdir()), "it left something behind"
        second = start_server("tiny-chat", runtime=first.runtime, grace=0.1)
        killed = {"event": "process of an earlier server killed", "process_pid": worker}
        wait_for(lambda: any(line.items() >= killed.items() for line in second.lines), "the worker is killed", 30)
        wait_for(lambda: not processes.alive(worker), "it is dead")
    assert second.client.chat(CHAT).text == CHAT_TEXT


def test_two_live_requests_with_one_id(shared_server: LemonbusServer) -> None:
    server = shared_server
    same = {"X-Request-ID": "twin"}
    assert server.client.chat(LOOP, max_tokens=1).status == 200
    with processes.stopped(server.engine_pid(LOOP)):
        long = server.client.start_chat(LOOP, same, stream=True, max_tokens=20)
        wait_for(lambda: server.state()["granted"] == 1, "it runs")
        chat, tale = server.client.start_chat(CHAT, same), server.client.start_chat(TALES, same)
        assert chat.finish().text == CHAT_TEXT
        assert tale.finish().text == TALE_TEXT
    assert long.finish().done
    assert {it.headers["x-request-id"] for it in (long, chat, tale)} == {"twin"}
