"""Errors that prevent a start: one line that names the setting and its origin, and an exit code."""

from __future__ import annotations

import errno
import importlib.util
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.config.settings import SETTINGS_FILE, Settings, read_settings, write_settings
from protocol.failures import Code, LemonbusError
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.lifecycle import startup
from supervisor.lifecycle.startup import StartupSettings
from supervisor.models.options.settings_check import check_settings
from supervisor.processes import listener
from tests.gateway.cli.terminal_process import LAUNCH


@pytest.fixture
def lemonbus(tmp_path: Path) -> Iterator[Any]:
    """Run a verb as its user does, with directories of its own; return its exit code and its lines on stderr."""

    def run(*words: str, file: str = "", within: Sequence[str] = (), **variables: str) -> tuple[int, list[str]]:
        config = tmp_path / "l.toml"
        config.write_text(file)
        around = {key: value for key, value in os.environ.items() if not key.startswith("LEMON")}
        own = {f"LEMONBUS_{name.upper()}_DIR": str(tmp_path / name) for name in ("state", "cache", "runtime")}
        done = subprocess.run(
            [*within, sys.executable, str(LAUNCH), words[0], "--config", str(config), *words[1:]],
            env={**around, **own, "LEMONBUS_PORT": "0", **variables},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, done.stderr.splitlines()

    return run


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--llamacpp-backend=nonsense", "llamacpp_backend must be one of cpu, system, "),
        ("--state-dir=/proc/x", "state_dir /proc/x cannot be used: No such file"),
        ("--runtime-dir=/proc/x", "runtime_dir /proc/x cannot be used: No such file"),
        ("--host=192.0.2.1 --allow-remote", "host 192.0.2.1 is not an address of this machine"),
    ],
)
def test_serve_ends_with_2_and_names_the_flag(lemonbus: Any, flag: str, expected: str) -> None:
    words = flag.split()
    code, lines = lemonbus("serve", *words)
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0].startswith(f"lemonbus: {words[0].split('=')[0]}: ")
    assert expected in lines[0]


@pytest.mark.parametrize(
    ("address", "code", "expected"),
    [
        ("127.0.0.1:{port}", startup.EXIT_FAILED, "and the port after it: Address already in use"),
        ("192.0.2.1:{port}", startup.EXIT_USAGE, "and the port after it: Cannot assign requested address"),
        ("127.0.0.1", startup.EXIT_USAGE, "HOST:PORT of this machine"),
    ],
)
def test_a_cluster_address_that_cannot_be_used_ends_the_start(
    lemonbus: Any, address: str, code: int, expected: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = address.format(port=taken.getsockname()[1])
        found, lines = lemonbus("serve", f"--cluster-address={given}")
    assert (found, len(lines)) == (code, 1), lines
    assert expected in lines[0]


def test_the_exit_code_is_the_same_where_nothing_can_be_printed(lemonbus: Any) -> None:
    code, lines = lemonbus("serve", "--state-dir=/proc/x", within=["sh", "-c", 'exec "$@" 2>/dev/full', "sh"])
    assert (code, lines) == (startup.EXIT_USAGE, [])


def test_config_says_what_no_recipe_would_take(lemonbus: Any, tmp_path: Path) -> None:
    code, lines = lemonbus("config", file="\nwhispercpp_backend = 'nonsense'")
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0].startswith(f"lemonbus: {tmp_path}/l.toml:2: whispercpp_backend must be one of cpu, system, ")
    code, lines = lemonbus("config", LEMONBUS_LLAMACPP_ARGS='"unclosed')
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0].startswith("lemonbus: LEMONBUS_LLAMACPP_ARGS: llamacpp_args cannot be split into words")
    assert lemonbus("config", file="llamacpp_args = ''") == (0, [])
    code, lines = lemonbus("config", file="\npin = ['not.known']")
    assert (code, lines) == (0, [f"lemonbus: {tmp_path}/l.toml:2: pin: Model 'not.known' not found"])


@pytest.mark.parametrize(
    ("given", "param", "expected"),
    [
        ({"whispercpp_backend": "x"}, "whispercpp_backend", "must be one of"),
        ({"sdcpp_backend": "x"}, "sdcpp_backend", "sdcpp_backend must be one of"),
        ({"llamacpp_args": "-np 0"}, "llamacpp_args", "-np needs a number"),
        ({"llamacpp_args": "--threads 999999999"}, "llamacpp_args", "the largest number is 1024"),
        ({"llamacpp_args": "--port=1"}, "llamacpp_args", "llamacpp_args must not contain --port"),
        ({"llamacpp_args": "--nonsense"}, "llamacpp_args", "llamacpp_args: unknown argument --nonsense"),
        ({"llamacpp_args": "-fa maybe"}, "llamacpp_args", "-fa cannot be maybe"),
        ({"slots": 257}, "slots", "up to 256"),
    ],
)
def test_settings_are_checked_as_options(given: dict[str, Any], param: str, expected: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        check_settings(Settings(**given))
    assert raised.value.failure.param == param
    assert expected in str(raised.value)


def test_a_cluster_needs_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    check_settings(Settings())
    with pytest.raises(LemonbusError, match=r"pip install 'lemonbus\[ray\]'") as raised:
        check_settings(Settings(placement="ray"))
    assert raised.value.failure.param == "placement"


def test_a_cluster_that_cannot_be_found_ends_the_start(lemonbus: Any, stand_in_ray: Path) -> None:
    """What the file of `ray start` says decides; Ray itself is not imported."""
    words = ("serve", "--placement=ray")
    variables = {"PYTHONPATH": str(stand_in_ray), "TMPDIR": "/nowhere", "RAY_ADDRESS": ""}
    code, lines = lemonbus(*words, **variables)
    assert (code, len(lines)) == (2, 1), lines
    assert "this machine belongs to no Ray cluster (/nowhere/ray/ray_current_cluster cannot be read)" in lines[0]
    code, lines = lemonbus(*words, "--ray-address=head", **variables)
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0].startswith("lemonbus: --ray-address: ray_address: expected HOST:PORT")
    assert not (stand_in_ray / "imported").exists()


@pytest.mark.parametrize("backend", ["", "default", "system", "vulkan"])
def test_settings_that_recipes_take(backend: str) -> None:
    """Only the programs themselves know the flags of programs that are not ours."""
    others = " --not-of-ours" if backend in ("system", "vulkan") else ""
    check_settings(Settings(llamacpp_backend=backend, sdcpp_backend=backend, llamacpp_args=f"-np 2 --no-mmap{others}"))


@pytest.mark.parametrize(
    ("problem", "code", "param", "expected"),
    [
        (OSError(errno.EADDRINUSE, "in use"), Code.CONFLICT, "", "stop what listens there, or choose another port"),
        (OSError(errno.EACCES, "denied"), Code.INVALID_REQUEST, "port", "choose another --port, above 1023"),
        (OSError(errno.EADDRNOTAVAIL, "no"), Code.INVALID_REQUEST, "host", "not an address of this machine"),
        (OSError(errno.EAFNOSUPPORT, "no"), Code.INVALID_REQUEST, "host", "not an address of this machine"),
        (OSError(errno.ENOBUFS, "full"), Code.CONFLICT, "", "cannot listen on example:80: full"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), Code.INVALID_REQUEST, "host", "a name that can be resolved"),
        (socket.gaierror(socket.EAI_AGAIN, "not now"), Code.CONFLICT, "", "cannot listen on example:80: not now"),
    ],
)
def test_a_port_that_cannot_be_bound_is_explained(problem: OSError, code: Code, param: str, expected: str) -> None:
    failure = listener.bind_failure(problem, Settings(host="example", port=80))
    assert (failure.code, failure.param) == (code, param)
    assert expected in failure.message
    assert ("stop what listens" in failure.message) is (problem.errno == errno.EADDRINUSE)


@pytest.mark.parametrize(
    ("prepare", "param", "path", "expected"),
    [
        (startup.prepare_directories, "cache_dir", "/dev/null", "it is not a directory"),
        (startup.runtime_directory, "runtime_dir", f"/run/{'x' * 100}", "is too long for a socket name"),
    ],
)
def test_a_directory_that_cannot_be_used_is_named(
    prepare: Callable[[Settings], object], param: str, path: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(LemonbusError, match=expected) as raised:
        prepare(Settings(**{"state_dir": str(tmp_path), param: path}))
    assert raised.value.failure.param == param
    assert path in str(raised.value)


def test_directories_are_made_and_left_empty(tmp_path: Path) -> None:
    settings = Settings(state_dir=str(tmp_path / "a" / "b"), cache_dir=str(tmp_path / "c"))
    startup.prepare_directories(settings)
    assert list((tmp_path / "a" / "b").iterdir()) == list((tmp_path / "c").iterdir()) == []


def test_a_full_disk_is_not_a_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "touch", full)
    with pytest.raises(LemonbusError) as raised:
        startup.prepare_directories(Settings(state_dir=str(tmp_path)))
    assert startup.report_failure(startup.StartupSettings(Settings(), {}), raised.value.failure) == startup.EXIT_FAILED


@pytest.mark.parametrize("inodes", [4, 5])
def test_a_runtime_directory_without_free_inodes_ends_the_start(lemonbus: Any, tmp_path: Path, inodes: int) -> None:
    """The directory, its lock, the spool and the settings can be made, but not the first or the second socket."""
    full = tmp_path / "full"
    full.mkdir()
    mount = f'mount -t tmpfs -o size=1m,mode=700,nr_inodes={inodes} none {full} && exec "$@"'
    within = ["unshare", "-Urm", "sh", "-c", mount, "sh"]
    if subprocess.run([*within, "true"], capture_output=True, timeout=10, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted on this machine")
    code, lines = lemonbus("serve", within=within, LEMONBUS_RUNTIME_DIR=str(full))
    assert (code, len(lines)) == (startup.EXIT_FAILED, 1), lines
    assert f"runtime_dir {full} cannot be used: No space left on device; free space or inodes there" in lines[0]
    assert "--runtime-dir" in lines[0]


def test_a_start_without_proc_is_explained(lemonbus: Any) -> None:
    within = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*within, "true"], capture_output=True, timeout=10, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted on this machine")
    code, lines = lemonbus("serve", within=within)
    assert (code, len(lines)) == (startup.EXIT_FAILED, 1), lines
    assert lines[0].startswith("lemonbus: /proc is not mounted")


def test_a_directory_of_another_program_is_not_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(tmp_path / "theirs"))
        with pytest.raises(LemonbusError, match="holds other files") as raised:
            startup.runtime_directory(Settings(runtime_dir=str(tmp_path)))
        assert raised.value.failure.param == "runtime_dir"
        assert tmp_path.stat().st_mode & 0o777 == 0o755
        (tmp_path / "theirs").rename(tmp_path / "w-0123456789ab-w1")
        (tmp_path / "lock").touch()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(tmp_path / "S.gpg-agent"))
            startup.runtime_directory(Settings(runtime_dir=str(tmp_path))).release()
    assert {path.name for path in tmp_path.iterdir() if path.is_socket()} == {"S.gpg-agent"}, "only what is ours left"


def test_another_server_is_not_a_wrong_setting(tmp_path: Path) -> None:
    settings = Settings(runtime_dir=str(tmp_path / "r"))
    held = RuntimeDirectory(tmp_path / "r")
    with pytest.raises(LemonbusError, match="already serves from") as raised:
        startup.runtime_directory(settings)
    assert startup.report_failure(startup.StartupSettings(settings, {}), raised.value.failure) == startup.EXIT_FAILED
    held.release()


def test_the_settings_are_removed_from_the_environment_of_children() -> None:
    handed = {"LEMONBUS_SETTINGS": '{"port": 1}', "LEMONBUS_ORIGINS": '{"port": "--port"}', "HOME": "/"}
    given = startup.take_settings(handed)
    assert (given.settings.port, given.origins, handed) == (1, {"port": "--port"}, {"HOME": "/"})
    assert startup.take_settings({"LEMONBUS_WARNINGS": '["no setting"]'}).warnings == ("no setting",)
    assert startup.take_settings({}) == startup.StartupSettings(msgspec.json.decode(b"{}", type=Settings), {})


@pytest.mark.parametrize("content", ["{", '{"keys": [{"name": "a"}]}'])
def test_a_broken_file_of_keys_ends_the_start(lemonbus: Any, tmp_path: Path, content: str) -> None:
    """It would be dangerous to continue without it: a server without keys is open to this machine."""
    path = tmp_path / "state" / "keys.json"
    path.parent.mkdir()
    path.write_text(content)
    code, (line,) = lemonbus("serve")
    assert code == 2
    assert "LEMONBUS_STATE_DIR" in line
    assert "keys.json" in line
    assert path.read_text() == content


def test_settings_that_were_accepted_last_win_over_those_of_the_start(tmp_path: Path) -> None:
    first = startup.StartupSettings(Settings(port=1), {}, ("a mistake in the first file",))
    write_settings(Settings(port=2), tmp_path)
    assert startup.accepted_settings(first, tmp_path) == first._replace(settings=Settings(port=2), warnings=())
    (tmp_path / SETTINGS_FILE).write_text("{")
    found = startup.accepted_settings(first, tmp_path)
    assert found.settings == Settings(port=1)
    assert "cannot be read" in "".join(found.warnings)


def test_settings_that_do_not_fit_are_explained_and_leave_the_former_ones(tmp_path: Path) -> None:
    before = Settings(port=1)
    write_settings(before, tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(LemonbusError, match=f"runtime_dir {tmp_path} cannot be used: File too large"):
            startup.write_first_settings(StartupSettings(Settings(port=2), {}), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_settings(tmp_path) == before
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")], "no draft is left"
