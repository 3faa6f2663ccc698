"""The commands only send an API key to a program of the server's user, not to another user's program at the server's address."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.cli import listener_check
from gateway.cli.exit_codes import FORBIDDEN, CommandError
from gateway.cli.listener_check import check_listener
from protocol.config.settings import Settings
from tests.gateway.cli.canned_responses import health
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer

STRANGER = 65534
SECRET = "lb-of-an-administrator"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user, which only root can be")
LISTEN = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    print(repr(connection.recv(65536)), flush=True)
    connection.close()
"""


@contextmanager
def listening(user: int) -> Iterator[subprocess.Popen[str]]:
    """Run a user's program that prints its port, and then the bytes of each connection."""
    words = [sys.executable, "-c", LISTEN, str(user)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        yield program
        program.kill()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[str]]:
    with listening(STRANGER) as program:
        yield program


def line_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.fixture
def port(stranger: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The port at which another user's program listens, which is that of the server in the configuration."""
    port = line_of(stranger)
    monkeypatch.setenv("LEMONBUS_PORT", port)
    monkeypatch.setenv("LEMONBUS_ADMIN_API_KEY", SECRET)
    monkeypatch.setenv("LEMONBUS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LEMONBUS_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(listener_check, "UNIT_DIRECTORY", tmp_path / "unit")
    return port


@needs_root
@pytest.mark.parametrize("command", [["status"], ["logs"], ["logs", "--follow"], ["config"], ["reload"]], ids=" ".join)
def test_another_users_program_at_the_servers_address_gets_no_key(
    lemonbus: Ends, stranger: subprocess.Popen[str], port: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, error = lemonbus(*command)
    assert "no API key is sent there" in error
    assert f"--url http://127.0.0.1:{port}" in error
    assert code == (0 if command == ["config"] else FORBIDDEN)
    monkeypatch.delenv("LEMONBUS_ADMIN_API_KEY")
    lemonbus("status")
    assert "GET /v1/health" in line_of(stranger), "it had no connection before"


@needs_root
def test_an_address_on_the_command_line_is_believed(lemonbus: Ends, stranger: subprocess.Popen[str], port: str) -> None:
    lemonbus("status", "--url", f"http://127.0.0.1:{port}")
    assert SECRET in line_of(stranger)


@needs_root
@pytest.mark.parametrize("name", ["state", "runtime", "unit"])
def test_who_owns_a_directory_of_the_server_gets_the_key(
    lemonbus: Ends, stranger: subprocess.Popen[str], port: str, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    lemonbus("status")
    assert SECRET in line_of(stranger)


@needs_root
@pytest.mark.parametrize("user", [listener_check.DYNAMIC_USERS[7], STRANGER])
def test_an_ordinary_user_knows_the_unit_by_its_dynamic_user(user: int) -> None:
    """Only root may look into the directory that systemd has for such users."""
    with tempfile.TemporaryDirectory(dir="/tmp") as run, listening(user) as listener:
        (Path(run) / "private" / "lemonbus").mkdir(parents=True)
        (Path(run) / "private").chmod(0o700)
        (Path(run) / "lemonbus").symlink_to("private/lemonbus")
        Path(run).chmod(0o755)
        url = f"http://127.0.0.1:{line_of(listener)}"
        # A separate process, because the user could not start it from this checkout.
        checked = os.fork()
        if not checked:
            os.setuid(1000)
            listener_check.UNIT_DIRECTORY = Path(run) / "lemonbus"
            code = 0
            try:
                check_listener(url, Settings())
            except CommandError as problem:
                code = problem.exit_code
            except BaseException:  # noqa: BLE001 - a test's process must not go on as pytest
                code = 99
            os._exit(code)
        _, status = os.waitpid(checked, 0)
    assert os.waitstatus_to_exitcode(status) == (FORBIDDEN if user == STRANGER else 0)


@needs_root
@pytest.mark.parametrize("user", [listener_check.DYNAMIC_USERS[7], 1000])
def test_root_knows_the_unit_although_its_directory_has_another_owner_on_the_disk(
    user: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd 257 maps the owner for the processes of the unit alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as run, listening(user) as listener:
        folder = Path(run) / "private" / "lemonbus"
        folder.mkdir(parents=True)
        os.chown(folder, 65534, 65534)
        (Path(run) / "lemonbus").symlink_to("private/lemonbus")
        monkeypatch.setattr(listener_check, "UNIT_DIRECTORY", Path(run) / "lemonbus")
        url = f"http://127.0.0.1:{line_of(listener)}"
        if user == 1000:
            with pytest.raises(CommandError, match="no API key is sent there"):
                check_listener(url, Settings())
        else:
            check_listener(url, Settings())


@needs_root
@pytest.mark.usefixtures("port")
def test_a_directory_that_anybody_could_have_made_says_nothing(lemonbus: Ends, tmp_path: Path) -> None:
    """Such as /tmp/lemonbus-0."""
    (tmp_path / "runtime").mkdir()
    os.chown(tmp_path / "runtime", STRANGER, STRANGER)
    tmp_path.chmod(0o1777)
    code, _, error = lemonbus("status")
    assert (code, "no API key is sent there" in error) == (FORBIDDEN, True)


def test_the_callers_own_server_gets_the_key(
    lemonbus: Ends, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies["GET", "/v1/health"] = health()
    monkeypatch.delenv("LEMONBUS_URL")
    monkeypatch.setenv("LEMONBUS_PORT", server.url.rpartition(":")[2])
    monkeypatch.setenv("LEMONBUS_ADMIN_API_KEY", SECRET)
    code, _, error = lemonbus("status")
    assert (code, error) == (0, "")
    assert server.asked[-1][3]["Authorization"] == f"Bearer {SECRET}"
