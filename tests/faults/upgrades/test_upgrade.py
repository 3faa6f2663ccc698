"""A release with another protocol version is installed while the server runs: the server reports what to do, and the release takes over.

A release of the same version takes over in ``test_upgrade_under_load.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol import RELEASE, VERSION
from tests.conftest import StartServer
from tests.faults.upgrades.upgrade_command import upgrade
from tests.support import processes
from tests.support.installed_code import InstalledCode
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP, TALES = "extra.tiny-chat", "extra.tiny-loop", "extra.tiny-tale"
OLDER = VERSION - 1


def restart_needed(server: LemonbusServer) -> list[dict[str, Any]]:
    return [line for line in server.lines if line["event"] == "lemonbus was updated under this server"]


def test_workers_of_another_version_finish_what_runs_and_are_replaced(
    start_server: StartServer, tmp_path: Path
) -> None:
    code = InstalledCode(tmp_path)
    code.install(release="0.0.9", version=OLDER)
    server = start_server("tiny-chat", "tiny-loop", "tiny-tale", root=tmp_path, load=[CHAT], slots=2)
    server.wait_loaded(CHAT)
    load = {"model_name": LOOP, "ctx_size": 1024, "pinned": True}
    assert server.client.post("/v1/load", load).status == 200
    engines = [server.engine_pid(model) for model in (CHAT, LOOP)]
    assert server.health()["version"] == "0.0.9"

    code.install(release=RELEASE, version=VERSION)
    a_new_worker_is_of_the_release_that_runs(server, code)
    workers_of_the_new_version_cannot_be_used(server)
    assert [server.engine_pid(model) for model in (CHAT, LOOP)] == engines
    warnings = restart_needed(server)
    assert [line["level"] for line in warnings] == ["error"]

    with processes.stopped(engines[1]):
        stream = server.client.start_chat(LOOP, stream=True, max_tokens=500)
        wait_for(lambda: server.state()["granted"] == 1, "its worker has got it")
        exit_code, out, err = upgrade(server)
        assert (exit_code, out) == (0, f"Release {RELEASE} serves. The former release was 0.0.9.\n")
        assert "different versions of the protocol" in err
        assert server.health()["version"] == RELEASE
        wait_for(lambda: server.state()["former_models"] == [LOOP], "one of the former workers still has a request")
    assert stream.finish(60).done, "it ended at its worker of the older release"
    wait_for(lambda: server.state()["former_models"] == [], "the last of the former workers has left")
    server.wait_loaded(CHAT, LOOP)
    assert not {*engines} & {server.engine_pid(model) for model in (CHAT, LOOP)}
    loaded = {each["model_name"]: each for each in server.health()["all_models_loaded"]}
    assert (loaded[LOOP]["pinned"], loaded[CHAT]["pinned"]) == (True, False)
    assert loaded[LOOP]["recipe_options"]["ctx_size"] == 1024
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert server.state()["problems"] == []
    assert restart_needed(server) == warnings, "only before it was upgraded"
    assert not [line for line in server.lines if "exception" in line]


def kill_spare(server: LemonbusServer) -> int:
    """Wait for the spare worker and kill it."""
    in_use = {server.worker_pid(model) for model in (CHAT, LOOP)}

    def only_spare() -> int:
        spares = [each.pid for each in server.workers() if each.pid not in in_use]
        return spares[0] if len(spares) == 1 else 0

    spare = wait_for(only_spare, "a spare worker runs, and no other")
    processes.kill(spare)
    wait_for(lambda: processes.look(spare) is None, "it is dead")
    return spare


def a_new_worker_is_of_the_release_that_runs(server: LemonbusServer, code: InstalledCode) -> None:
    """The server was imported before another release was installed, and reads none of its files."""
    with code.without("workers"):
        kill_spare(server)
        wait_for(lambda: [each for each in server.workers() if has_threads(each.pid)][2:], "another one uses the bus")
    assert server.client.chat(TALES).status == 200
    assert server.client.post("/v1/unload", {"model_name": TALES}).status == 200
    assert server.state()["problems"] == []


def has_threads(pid: int) -> bool:
    try:
        return len([*Path(f"/proc/{pid}/task").iterdir()]) > 1
    except FileNotFoundError:
        return False


def workers_of_the_new_version_cannot_be_used(server: LemonbusServer) -> None:
    """Nothing waits forever, and loaded models are served."""
    processes.kill(server.fork_server_pid)  # it has imported the running release
    kill_spare(server)
    (problem,) = wait_for(lambda: server.state()["problems"], "health tells the problem")
    assert "lemonbus upgrade" in problem
    answer = server.client.chat(TALES)
    assert (answer.status, answer.error["code"]) == (503, "restart_needed")
    assert answer.headers["retry-after"]
    assert server.client.chat(CHAT).text == CHAT_TEXT
