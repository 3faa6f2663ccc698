"""A release is installed that cannot serve, or whose supervisor is killed before it serves: the former release goes on.

Each test installs a release of another version of the protocol, unless it says otherwise.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from protocol import RELEASE, VERSION
from tests.conftest import StartServer
from tests.faults.upgrades.upgrade_command import upgrade
from tests.support import processes
from tests.support.installed_code import InstalledCode
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
NUMBERS = itertools.count(1)
DIES = """
import os, pathlib
from protocol import RELEASE
_deaths = pathlib.Path(f"deaths.{RELEASE}")
_whole = Takeover._end
def _end(self):
    _whole(self)
    left = int(_deaths.read_text())
    _deaths.write_text(str(left - 1))
    if left > 0:
        os.kill(os.getpid(), 9)
Takeover._end = _end
"""
"""Code that kills supervisors of a release when they have taken over, before its gateways serve. The file says how

many.
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> InstalledCode:
    installed = InstalledCode(tmp_path_factory.mktemp("code"))
    installed.append("supervisor/keeper/restart_policy.py", "\nUPGRADE_TIMEOUT_S = 8.0\n")
    return installed


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, code: InstalledCode) -> LemonbusServer:
    return start_module_server("tiny-chat", "tiny-loop", root=code.folder, slots=2)


@pytest.fixture
def loaded(server: LemonbusServer) -> LemonbusServer:
    load = {"model_name": CHAT, "ctx_size": 1024, "pinned": True}
    assert server.client.post("/v1/load", load).status == 200
    assert server.client.post("/v1/load", {"model_name": LOOP}).status == 200
    return server


@pytest.fixture
def install(code: InstalledCode) -> Iterator[Callable[..., str]]:
    """Installs another release, with a mistake at the end of a file; returns its name. The mistake is removed after the test."""
    whole: dict[str, str] = {}

    def installs(file: str, mistake: str, *, same_version: bool = False) -> str:
        number = next(NUMBERS)
        release = f"{RELEASE}.{number}"
        code.install(release=release, version=0 if same_version else VERSION + number)
        whole[file] = code.append(file, mistake)
        return release

    yield installs
    for file, text in whole.items():
        code.replace(file, text)


def test_a_release_whose_supervisors_die_changes_nothing(
    loaded: LemonbusServer, code: InstalledCode, install: Callable[..., str]
) -> None:
    server = loaded
    before = what_serves(server)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=300)
    stream.until(lambda it: len(it.events) > 2)
    release = install("supervisor/recovery/takeover.py", DIES)
    (code.folder / f"deaths.{release}").write_text("1000")
    exit_code, _, message = upgrade(server)
    assert exit_code == 1
    assert f"release {before.release} goes on" in message
    assert "became ready: SIGKILL" in message
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert stream.finish(60).done
    assert what_serves(server) == before._replace(supervisor=server.supervisor_pid)


class ServingProcesses(NamedTuple):
    """What a failed upgrade must leave unchanged, except that another supervisor of the same release runs."""

    release: str
    gateways: list[int]
    engines: list[int]
    supervisor: int = 0


def what_serves(server: LemonbusServer) -> ServingProcesses:
    """Wait until nothing of a release before is left, and return what serves."""

    def settled() -> ServingProcesses | None:
        health, gateways = server.health(), server.gateway_pids()
        engines = {each["model_name"]: each["pid"] for each in health["all_models_loaded"]}
        if health["lemonbus"]["former_models"] or gateways_and_master(server) != {server.gateway_master(), *gateways}:
            return None
        if len(gateways) != server.settings.gateway_workers or not {CHAT, LOOP} <= engines.keys():
            return None
        return ServingProcesses(
            health["version"], sorted(gateways), [engines[CHAT], engines[LOOP]], server.supervisor_pid
        )

    return wait_for(settled, "all processes are of one release", 60)


def gateways_and_master(server: LemonbusServer) -> set[int]:
    """The processes of gunicorn, those of a former release included."""
    return {process.pid for process in server.process_tree() if process.runs("gateway")}


def test_a_supervisor_that_is_killed_during_an_upgrade_is_replaced_by_one_of_the_new_release(
    loaded: LemonbusServer, code: InstalledCode, install: Callable[..., str]
) -> None:
    server = loaded
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=300)
    stream.until(lambda it: len(it.events) > 2)
    release = install("supervisor/recovery/takeover.py", DIES)
    deaths = code.folder / f"deaths.{release}"
    deaths.write_text("1")
    exit_code, out, _ = upgrade(server)
    assert exit_code == 0
    assert out.startswith(f"Release {release} serves.")
    assert deaths.read_text() == "-1", "one was killed, and one was not"
    assert stream.finish(60).done
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert server.health()["version"] == release
    wait_for(lambda: is_pinned(server), "the options of calls are those of before", 60)


def is_pinned(server: LemonbusServer) -> bool:
    models = {each["model_name"]: each for each in server.health()["all_models_loaded"]}
    return CHAT in models and models[CHAT]["pinned"] and models[CHAT]["recipe_options"]["ctx_size"] == 1024


def test_a_supervisor_that_is_killed_after_an_upgrade_is_replaced(
    loaded: LemonbusServer, install: Callable[..., str]
) -> None:
    server = loaded
    release = install("supervisor/recovery/takeover.py", "")
    assert upgrade(server)[0] == 0
    server.kill_supervisor()
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert server.health()["version"] == release


def test_a_server_whose_gateways_died_after_an_update_is_taken_over_by_the_installed_release(
    loaded: LemonbusServer, install: Callable[..., str]
) -> None:
    server = loaded
    release = install("gateway/app.py", "")
    what_serves(server)
    processes.kill(server.gateway_master())
    wait_for(lambda: version_served(server) == release, "gateways that the supervisor understands serve", 60)
    assert server.client.chat(CHAT).text == CHAT_TEXT


def version_served(server: LemonbusServer) -> str:
    """Return the release that answers; nothing while none does."""
    with contextlib.suppress(OSError):
        answer = server.client.get("/v1/health", patience=2.0)
        return str(answer.json()["version"]) if answer.status == 200 else ""
    return ""


def test_a_release_whose_gateways_do_not_start_changes_nothing(
    loaded: LemonbusServer, install: Callable[..., str]
) -> None:
    server = loaded
    before = what_serves(server)
    install("gateway/app.py", "\nimport nothing_of_that_name\n", same_version=True)
    upgraded = server.client.start("POST", "/internal/upgrade", {})
    wait_for(lambda: server.supervisor_pid not in (0, before.supervisor), "a supervisor of the new release runs")
    assert server.client.chat(CHAT).text == CHAT_TEXT, "the former gateways go on"
    answer = upgraded.finish(60)
    assert answer.status == 500
    assert "its gateways did not serve" in answer.error["message"]
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert what_serves(server) == before._replace(supervisor=server.supervisor_pid)
