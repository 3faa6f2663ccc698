"""``lemonbus keys`` with a real server: whichever shell runs it, the keys of that server change, in every gateway process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from protocol.config.api_keys import KEYS_FILE, read_keys
from tests.conftest import StartServer
from tests.support.clients.http_client import RawHttpClient
from tests.support.processes import stop
from tests.support.server import ROOT, LemonbusServer

NEW_CONNECTIONS = 8
"""Each request may come to any gateway process."""


class Shell:
    """A shell with another home and none of the server's variables: root's, beside a server that runs as a unit."""

    def __init__(self, server: LemonbusServer, home: Path) -> None:
        self.home = home
        self._variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LEMON", "XDG_"))},
            "HOME": str(home),
            "LEMONBUS_PORT": str(server.port),
        }

    def keys(self, *words: str, key: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, ROOT / "deploy" / "launch", "keys", *words],
            env=self._variables | ({"LEMONBUS_ADMIN_API_KEY": key} if key else {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def statuses(server: LemonbusServer, key: str = "") -> set[int]:
    client = RawHttpClient(server.port, {"Authorization": f"Bearer {key}"} if key else {})
    return {client.get("/v1/models").status for _ in range(NEW_CONNECTIONS)}


def test_keys_are_those_of_the_running_server(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    shell = Shell(server, tmp_path)
    file = Path(server.settings.state_dir) / KEYS_FILE

    for words in ([], ["--state-dir", str(file.parent)]):
        refused = shell.keys("add", "ci", *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "make one with the scope admin first" in refused.stderr
        assert not file.exists()

    added = shell.keys("add", "root", "--scope", "admin")
    assert (added.returncode, added.stderr.count(str(file))) == (0, 1), added
    assert "every client now needs one" in added.stderr
    assert statuses(server) == {401}
    assert statuses(server, added.stdout.strip()) == {200}

    client = shell.keys("add", "ci", key=added.stdout.strip())
    assert statuses(server, client.stdout.strip()) == {200}
    assert shell.keys("revoke", "ci", key=client.stdout.strip()).returncode == 4
    assert shell.keys("revoke", "ci", key=added.stdout.strip()).stdout == "Revoked key ci\n"
    assert statuses(server, client.stdout.strip()) == {401}
    assert [key.name for key in read_keys(file)] == ["root"]
    assert not [path for path in tmp_path.rglob("*") if path.name == KEYS_FILE]


def test_an_administrator_without_a_key_names_the_state_directory(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    shell = Shell(server, tmp_path)
    file = Path(server.settings.state_dir) / KEYS_FILE
    wrong = shell.keys("add", "root", "--scope", "admin", "--state-dir", str(tmp_path / "elsewhere"))
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "does not read" in wrong.stderr
    assert not (tmp_path / "elsewhere").exists()
    assert statuses(server) == {200}, "the server has no keys still"
    words = ("--scope", "admin", "--state-dir", str(file.parent))
    first = shell.keys("add", "lost", *words)
    assert "reads this file and applies the change now" in first.stderr
    second = shell.keys("add", "root", *words)
    assert statuses(server, second.stdout.strip()) == {200}
    assert shell.keys("revoke", "lost", "--state-dir", str(file.parent)).returncode == 0
    assert statuses(server, first.stdout.strip()) == {401}
    assert [key.name for key in read_keys(file)] == ["root"]


def test_a_key_is_added_while_no_supervisor_answers(start_server: StartServer, tmp_path: Path) -> None:
    """The command used to send a call that waits for the supervisor, give up, remove the file, and leave a server without a valid key."""
    server = start_server()
    state = server.settings.state_dir
    stopped = [server.keeper_pid, server.supervisor_pid]
    for pid in stopped:
        stop(pid)
    try:
        added = Shell(server, tmp_path).keys("add", "root", "--scope", "admin", "--state-dir", state)
    finally:
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)
    assert (added.returncode, "reads this file and applies the change now" in added.stderr) == (0, True), added
    assert statuses(server) == {401}
    assert statuses(server, added.stdout.strip()) == {200}


def test_changes_at_once_wait_for_each_other(start_server: StartServer) -> None:
    server = start_server(admin_api_key="lb-admin")
    client = RawHttpClient(server.port, server.admin_headers)
    with ThreadPoolExecutor(24) as pool:
        added = pool.map(lambda number: client.post("/internal/keys", {"name": f"k{number}"}).status, range(24))
    assert set(added) == {200}
    assert client.start("DELETE", "/internal/keys/k7").finish().status == 200
    assert len(read_keys(Path(server.settings.state_dir) / KEYS_FILE)) == 23
