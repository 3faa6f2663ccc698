"""Rules for all commands: help, wrong usage, the server's address, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click import Context

from gateway.api.lemonade.system_info import system_info
from gateway.cli.api_client import KEY_HINT
from gateway.cli.main import OTHER_NAMES, cli
from protocol.config.settings import Settings, write_settings
from protocol.messages.system_info import Cpu, MachineInfo, SystemInfo
from tests.gateway.cli.canned_responses import ALL, catalogue, health
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import LAUNCH
from tests.gateway.fake_server import FakeServer, Reply

COMMANDS = cli.list_commands(Context(cli))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, lemonbus: Ends) -> None:
    code, out, _ = lemonbus(command, "--help")
    assert code == 0
    assert out.startswith(f"Usage: lemonbus {command}")


def test_help_lists_all_commands_and_exit_codes(lemonbus: Ends) -> None:
    code, out, _ = lemonbus("--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)
    assert "3 the server cannot be reached" in out


def test_help_lists_a_command_once_with_its_other_names(lemonbus: Ends) -> None:
    listed = [line.split("  ")[1] for line in lemonbus("--help")[1].partition("Commands:\n")[2].splitlines() if line]
    assert {"list, ls", "delete, rm", "unload, stop"} <= set(listed)
    assert not set(listed) & {"ls", "rm", "stop", "list", "delete", "unload"}


@pytest.mark.parametrize(("name", "command"), OTHER_NAMES.items())
def test_another_name_is_the_same_command(name: str, command: str, lemonbus: Ends) -> None:
    assert cli.get_command(Context(cli), name) is cli.get_command(Context(cli), command)
    assert lemonbus(name, "--help")[1].startswith(f"Usage: lemonbus {name} ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sttus"], "Did you mean status?"),
        (["zzz"], "See lemonbus --help."),
        (["rmi", "A"], "Did you mean rm?"),
        (["models"], "Did you mean list?"),
        (["delete"], "Missing argument 'MODEL...'"),
        (["list", "--nope"], "No such option"),
        (["unload"], "Name a MODEL, or use --all."),
        (["unload", "A", "--all"], "Name a MODEL, or use --all."),
        (["load", "A", "-o", "x"], "expected KEY=VALUE"),
        (["run", "A", " "], "The prompt is empty."),
        (["run", "A"], "The prompt is empty."),
        (["run", "A", "hi", "--max-tokens", "0"], "--max-tokens"),
        (["logs", "--level", "loud"], "--level"),
        (["status", "--url", "localhost:1"], "expected http://HOST:PORT"),
        (["status", "--url", "http://localhost:x"], "http://localhost:x"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], expected: str, server: FakeServer, lemonbus: Ends) -> None:
    code, out, err = lemonbus(*arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert not server.asked


@pytest.mark.parametrize("command", ["load", "pull", "run"])
def test_a_missing_model_is_wrong_usage(lemonbus: Ends, command: str) -> None:
    code, out, err = lemonbus(command)
    assert (code, out) == (2, "")
    assert "Missing argument 'MODEL'" in err


CALLS = [["status"], ["list"], ["load", "A"], ["unload", "A"], ["pull", "A"], ["run", "A", "hi"], ["logs"]]


@pytest.mark.parametrize("arguments", CALLS, ids=lambda words: words[0])
def test_no_server_ends_with_3(arguments: list[str], lemonbus: Ends, free_port: int) -> None:
    code, out, err = lemonbus(*arguments, "--url", f"http://127.0.0.1:{free_port}")
    assert (code, out) == (3, "")
    assert err == f"lemonbus: cannot reach http://127.0.0.1:{free_port}: Connection refused. Is the server running?\n"


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 1), (409, 1), (500, 1), (503, 1)])
def test_errors_carry_message_code_request_and_when_to_retry(
    status: int, code: int, server: FakeServer, lemonbus: Ends
) -> None:
    body = {"status": "error", "message": "m", "error": {"message": "no", "code": "c", "request_id": "req-1"}}
    server.replies["POST", "/v1/load"] = Reply(body, status, Retry_After="7")
    hint = KEY_HINT if status == 401 else ""
    assert lemonbus("load", "A") == (code, "", f"lemonbus: no (c, req-1); try again in 7 s{hint}\n")


def test_a_foreign_server_is_recognised(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[ALL] = Reply(pieces=["<html>"])
    assert lemonbus("list") == (1, "", f"lemonbus: {server.url} did not answer in JSON; is this a lemonbus server?\n")
    server.replies[ALL] = Reply(pieces=["<html>"], status=502)
    assert lemonbus("list") == (1, "", "lemonbus: the server answered 502 Bad Gateway\n")
    server.replies[ALL] = Reply(pieces=["<html>"], status=501)
    assert lemonbus("list")[2] == "lemonbus: the server answered 501 Not Implemented; is this a lemonbus server?\n"


def test_the_key_is_sent_and_a_version_prefix_in_the_url_is_ignored(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies[ALL] = catalogue()
    monkeypatch.setenv("LEMONBUS_API_KEY", "k")
    assert lemonbus("list", "--url", server.url + "/api/v1/")[0] == 0
    assert server.asked[-1][1] == "/v1/models?show_all=true"
    assert server.asked[-1][3]["Authorization"] == "Bearer k"


@pytest.mark.parametrize("words", ["--url {url} list", "list --url {url}", "--url http://127.0.0.1:1 list --url {url}"])
def test_the_address_goes_before_the_command_or_after_it(
    words: str, server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEMONBUS_URL", "http://127.0.0.1:1")
    server.replies[ALL] = catalogue()
    assert lemonbus(*words.format(url=server.url).split())[0] == 0
    machine = MachineInfo("Linux", 1 << 30, Cpu("a processor", 2, 2, "x86_64"))
    info = system_info(SystemInfo(machine), verbose=False)
    server.replies["GET", "/v1/system-info"] = Reply(msgspec.to_builtins(info))
    assert lemonbus(*words.replace("list", "backends list").format(url=server.url).split())[0] == 0
    assert lemonbus("backends", "--url", server.url, "list")[0] == 0


def test_only_serve_refuses_an_address(lemonbus: Ends) -> None:
    code, _, err = lemonbus("--url", "http://127.0.0.1:1", "serve")
    assert code == 2
    assert "serve starts a server and does not connect to one: leave out --url." in err
    assert lemonbus("--url", "http://127.0.0.1:1", "version")[0] == 0


def test_address_and_key_come_from_the_configuration(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LEMONBUS_URL")
    (tmp_path / "lemonbus").mkdir()
    port = server.url.rpartition(":")[2]
    (tmp_path / "lemonbus" / "lemonbus.toml").write_text(f"host = '0.0.0.0'\nport = {port}\napi_key = 'k'")
    server.replies[ALL] = catalogue()
    assert lemonbus("list")[0] == 0
    assert server.asked[-1][3]["Authorization"] == "Bearer k"
    assert lemonbus("list", "--url", server.url)[0] == 0
    assert "Authorization" not in server.asked[-1][3]


@pytest.mark.parametrize("mistake", ["ports = 1", "max_loaded_models = -3", "[models", "[models.tiny]\ncolour = 1"])
def test_a_configuration_file_that_is_wrong_is_reported_and_the_server_is_asked(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: str
) -> None:
    monkeypatch.delenv("LEMONBUS_URL")
    (tmp_path / "lemonbus").mkdir()
    file = tmp_path / "lemonbus" / "lemonbus.toml"
    runtime, port = tmp_path / "r", int(server.url.rpartition(":")[2])
    file.write_text(f"runtime_dir = '{runtime}'\nport = {port}\napi_key = 'k'\n{mistake}\n")
    server.replies[ALL] = catalogue()
    code, _, err = lemonbus("list")
    assert code == 0, err
    assert str(file) in err
    assert server.asked[-1][3]["Authorization"] == "Bearer k"
    runtime.mkdir()
    write_settings(Settings(port=port, api_key="accepted"), runtime)
    file.write_text(file.read_text().replace(str(port), "1"))
    assert lemonbus("list")[0] == 0, (
        "the address is that of the server that runs, and not that of a file it has refused"
    )
    assert server.asked[-1][3]["Authorization"] == "Bearer accepted"
    monkeypatch.setenv("LEMONBUS_PORT", "many")
    assert lemonbus("list")[0] == 2


def test_a_key_that_no_header_can_carry(lemonbus: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEMONBUS_API_KEY", "sésame")
    for command in ("status", "logs"):
        code, _, err = lemonbus(command)
        assert code == 2
        assert "ASCII" in err


@pytest.mark.parametrize("command", ["status", "version", "--help"])
def test_a_closed_output_ends_with_1_and_one_line(command: str, server: FakeServer) -> None:
    server.replies["GET", "/v1/health"] = health()
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, LAUNCH, command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False
        )
    assert (done.returncode, done.stderr) == (1, "lemonbus: No space left on device\n")


def test_a_proxy_of_the_environment_is_not_asked(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Requests go to the named server, without a proxy and without the login of a .netrc."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.replies[ALL] = catalogue()
    assert lemonbus("list")[0] == 0
    assert "Authorization" not in server.asked[-1][3]


def test_a_redirect_is_not_followed_with_the_key(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEMONBUS_API_KEY", "k")
    server.replies[ALL] = Reply(pieces=[""], status=302, Location="/elsewhere")
    code, _, err = lemonbus("list")
    assert (code, len(server.asked)) == (1, 1)
    assert "did not answer in JSON" in err
