"""The systemd unit under a real systemd: a supervisor or a server that dies comes back at once, a reload is an upgrade, and
streams end whole."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from pathlib import Path

import psutil

from tests.bare import installation
from tests.bare.container import Container
from tests.bare.root import CHECKOUT, PATH, Root
from tests.support.clients.http_client import RawHttpClient
from tests.support.models.tiny_models import link_models
from tests.support.ports import free_port
from tests.support.waiting import wait_for

MODEL = "extra.tiny-loop"
TOKENS = 4000
"""Enough for the stream to go on longer than a new server takes to start."""
PYTHON = "/opt/lemonbus/bin/python"
LEMONBUS = "/opt/lemonbus/bin/lemonbus"
STATE_DIR = "/var/lib/lemonbus"
MARK = "ended with"
DROP_INS = (("gpu.conf", "SupplementaryGroups", "render video"), ("no-devices.conf", "PrivateDevices", "yes"))
APT = "DEBIAN_FRONTEND=noninteractive apt-get -qq"
SETTINGS_FILE = "/etc/lemonbus/lemonbus.toml"
SETTINGS = """\
port = {port}
offline = true
extra_models_dir = "/srv/models"
load = ["{model}"]
threads = 1
ctx_size = 8192
"""


def check(machine: Root) -> int:
    """Install the unit as its first lines say, start it, and break it; return 0 if all went well."""
    port = free_port()
    began = time.monotonic()
    *install, start, first = installation.commands(machine, "lemonbus.service")
    for command in (f"{APT} update", f"{APT} install --no-install-recommends systemd dbus >/dev/null", *install):
        if code := machine.run(f"export PIP_QUIET=2; {command}", user="root"):
            print(f"bare: {command}: exit {code}", flush=True)
            return code
    _prepare(machine.folder, port)
    with Container(machine.folder, f"lemonbus-{port}", machine.index()) as container:
        try:
            installed = time.monotonic()
            unit = Unit(container, port)
            unit.is_installed(start)
            answer = unit.gives_a_first_answer(first)
            print(
                f"bare: the unit: installed in {installed - began:.0f} s, and {answer!r} {time.monotonic() - installed:.0f} s"
                " later, with the boot and the download of the model",
                flush=True,
            )
            unit.is_configured(SETTINGS.format(port=port, model=MODEL))
            unit.is_verified()
            unit.has_its_log_in_the_journal()
            unit.survives_its_supervisor()
            unit.is_upgraded_by_a_reload(installation.upgrade(machine))
            unit.refuses_a_wrong_configuration()
            unit.moves_to_another_port(free_port())
            unit.has_its_keys_changed_from_roots_shell()
            unit.has_the_key_of_the_document(installation.documented_key(machine))
            for drop_in, property_, value in DROP_INS:
                unit.takes_a_drop_in(installation.commands(machine, drop_in), property_, value)
            unit.lets_a_stream_end_when_the_server_dies()
            unit.drains_before_it_stops(installation.drain(machine))
        except AssertionError as wrong:
            print(container.run("journalctl", "--no-pager", "-o", "cat", "-n", "40", "-u", "lemonbus"))
            print(f"bare: the systemd unit: {wrong}", flush=True)
            return 1
    print(
        "bare: under systemd supervisor and server came back at once, streams ended whole, and nothing was left",
        flush=True,
    )
    return 0


def _prepare(root: Path, port: int) -> None:
    """Put models there, and the only setting that a second server of this machine needs: the container has its network."""
    models = root / "srv" / "models"
    link_models(root / "srv" / "links", "tiny-loop")
    shutil.copytree(root / "srv" / "links", models)  # what the links mean
    settings = root / SETTINGS_FILE[1:]
    settings.parent.mkdir()
    settings.write_text(f"port = {port}\n")


class Unit:
    """The unit in a container, and checks of it."""

    def __init__(self, container: Container, port: int) -> None:
        """``port``: where its server answers."""
        self._container = container
        self._client = RawHttpClient(port)

    def _main(self) -> int:
        return int(self._container.run("systemctl", "show", "-p", "MainPID", "--value", "lemonbus") or 0)

    def _ours(self) -> list[psutil.Process]:
        return [each for each in self._container.processes() if _program(each).startswith(PYTHON)]

    def _loaded(self) -> bool:
        try:
            return MODEL in self._client.get("/v1/health", patience=2.0).body.decode()
        except OSError:
            return False

    def is_up(self) -> None:
        """Its server answers and has loaded what its configuration names."""
        wait_for(self._loaded, "the server has loaded its model", 60)

    def is_installed(self, command: str) -> None:
        """Enable and start it: the command ends when it serves."""
        self._must(command)
        assert self._client.get("/health").status == 200
        assert self._shell("systemctl is-enabled lemonbus") == "enabled"

    def gives_a_first_answer(self, command: str) -> str:
        """Download a model and ask it; return its answer."""
        answer = self._must(command).splitlines()[-1]
        assert answer, "it says something"
        return answer

    def is_configured(self, settings: str) -> None:
        """Restart it with other settings."""
        self._must(f"cat > {SETTINGS_FILE} <<'END'\n{settings}END")
        self._must("systemctl restart lemonbus")
        self.is_up()

    def has_its_log_in_the_journal(self) -> None:
        """The journal has the log, with the levels that journalctl filters by; lemonbus shows the same lines."""
        everything, warnings = (self._shell(f"journalctl -u lemonbus -o cat{more}") for more in ("", " -p warning"))
        assert '"event":"model ready"' in everything
        assert '"event":"model ready"' not in warnings
        assert "model ready" in self._must("lemonbus logs")

    def is_verified(self) -> None:
        """systemd understands every line of it; one that is older than version 254 leaves one out."""
        output = self._container.run(
            "sh", "-c", "systemd-analyze verify lemonbus.service 2>&1 | grep -v DelegateSubgroup"
        )
        assert "lemonbus.service" not in output, output

    def _supervisor(self) -> int:
        """Return the pid of the supervisor that reports its health; 0 if none does."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(self._client.get("/v1/health", patience=2.0).json()["lemonbus"]["pid"])
        return 0

    def survives_its_supervisor(self) -> None:
        """Kill the supervisor while a stream runs: the unit's main process stays, and the stream is complete."""
        main, old = self._main(), wait_for(self._supervisor, "a supervisor serves", 30)
        stream = self._client.start_chat(MODEL, stream=True, max_tokens=TOKENS)
        stream.until(lambda it: len(it.events) > 2)
        self._container.process(old).kill()
        assert stream.finish(60).done, "the stream ended whole"
        wait_for(lambda: self._supervisor() not in (0, old), "another supervisor serves", 30)
        assert self._main() == main

    def is_upgraded_by_a_reload(self, command: str) -> None:
        """Install it once more and reload it: another supervisor serves, and the model is still loaded."""
        main, old = self._main(), wait_for(self._supervisor, "a supervisor serves", 30)
        self._must(command)
        wait_for(lambda: self._supervisor() not in (0, old), "another supervisor serves", 30)
        self.is_up()
        assert self._main() == main

    def refuses_a_wrong_configuration(self) -> None:
        """Reload it with a wrong configuration: systemctl fails, the journal says why, and the server goes on unchanged."""
        main = self._main()
        self._container.run("sed", "-i", "1i ports = 1", SETTINGS_FILE)
        failed = self._container.run("sh", "-c", "systemctl reload lemonbus 2>/dev/null || echo failed")
        assert failed == "failed"
        journal = self._container.run("journalctl", "-u", "lemonbus", "-o", "cat", "-n", "50")
        assert "lemonbus.toml:1: unknown setting 'ports'" in journal
        self._container.run("sed", "-i", "1d", SETTINGS_FILE)
        self.is_up()
        assert self._main() == main

    def moves_to_another_port(self, port: int) -> None:
        """Reload it with another port, and with its own again: each reload finds the server where it still listens."""
        main, own = self._main(), self._client
        for client in (RawHttpClient(port), own):
            self._shell(f"sed -i 's/^port = .*/port = {client.port}/' {SETTINGS_FILE}")
            assert self._shell("systemctl reload lemonbus && echo done") == "done"
            self._client = client
            self.is_up()
        assert self._main() == main

    def has_its_keys_changed_from_roots_shell(self) -> None:
        """Run commands in root's shell, which has neither the unit's variables nor its home: they still change the keys of the unit."""
        environment = self._shell(f"{LEMONBUS} config")
        assert re.search(rf'^state_dir +"{STATE_DIR}" +LEMONBUS_STATE_DIR +differs$', environment, re.MULTILINE)
        admin = self._shell(f"{LEMONBUS} keys add root --scope admin 2>/dev/null")
        assert self._client.get("/v1/models").status == 401, "the first key closes the server"
        self._shell(f"echo LEMONBUS_ADMIN_API_KEY={admin} > /etc/lemonbus/environment")
        with_key = f"LEMONBUS_ADMIN_API_KEY={admin} {LEMONBUS}"
        key = self._shell(f"{with_key} keys add ci --models 'extra.*,other' 2>/dev/null")
        client = RawHttpClient(self._client.port, {"Authorization": f"Bearer {key}"})
        assert client.get("/v1/models").status == 200
        revoked = self._shell(f"{with_key} keys revoke ci 2>&1")
        assert f"{STATE_DIR}/keys.json. " in revoked
        assert "It now has 1 valid key" in revoked
        assert client.get("/v1/models").status == 401
        assert self._shell(f"{LEMONBUS} keys revoke root 2>/dev/null || echo $?") == "4"
        done = self._shell("systemctl reload lemonbus && echo done")
        assert done == "done", "a reload reads the file with the key"
        self._shell(f"{LEMONBUS} keys revoke root --state-dir {STATE_DIR}")
        assert self._shell("find /root -name keys.json") == ""
        self._shell(f"rm {STATE_DIR}/keys.json /etc/lemonbus/environment && systemctl restart lemonbus")
        self.is_up()

    def has_the_key_of_the_document(self, commands: str) -> None:
        """Run the lines of docs/keys.md for an installed unit, and go back."""
        self._must(f"set -e\n{commands}")
        wait_for(lambda: self._client.get("/v1/models").status == 401, "clients need a key", 30)
        self._must(f"rm {STATE_DIR}/keys.json /etc/lemonbus/environment && systemctl restart lemonbus")
        self.is_up()

    def takes_a_drop_in(self, commands: list[str], property_: str, value: str) -> None:
        """Install a drop-in as its first lines say: the unit has the property, and serves; then remove it."""
        for command in commands:
            self._must(command)
        assert self._shell(f"systemctl show -p {property_} --value lemonbus") == value
        self.is_up()
        self._must(
            "rm -r /etc/systemd/system/lemonbus.service.d && systemctl daemon-reload && systemctl restart lemonbus"
        )
        self.is_up()

    def _shell(self, command: str) -> str:
        """Run a command as root, with only root's environment; return what it prints, without the last newline."""
        return self._container.run("env", "-i", f"PATH={PATH}", "HOME=/root", "sh", "-c", command).strip()

    def _must(self, command: str) -> str:
        """Run a command in the checkout, which must succeed; return what it prints."""
        output, mark, code = self._shell(f"exec 2>&1; cd {CHECKOUT}; ({command}\n); echo {MARK} $?").rpartition(MARK)
        assert code.strip() == "0", f"{command}: exit {code}: {output}"
        assert mark
        return output.strip()

    def lets_a_stream_end_when_the_server_dies(self) -> None:
        """Kill the keeper while a stream runs: a new one serves before the stream ends, complete; then all old processes are gone."""
        old = self._main()
        stream = self._client.start_chat(MODEL, stream=True, max_tokens=TOKENS)
        stream.until(lambda it: len(it.events) > 2)
        self._container.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "lemonbus")
        wait_for(lambda: self._main() not in (0, old), "systemd starts a new keeper", 30)
        self.is_up()
        assert stream.finish(60).done, "the stream ended whole"
        main = self._container.process(self._main())
        wait_for(lambda: self._ours() == self._ours_below(main), "the old server has left nothing", 60)

    def _ours_below(self, main: psutil.Process) -> list[psutil.Process]:
        below = {main, *main.children(recursive=True)}
        return [each for each in self._ours() if each in below]

    def drains_before_it_stops(self, line: str) -> None:
        """Stop it with the line for a longer end, within a stream: the stream is whole, and no process is left."""
        folder = "/run/systemd/system/lemonbus.service.d"
        self._must(f"mkdir -p {folder} && printf '[Service]\\n{line}\\nTimeoutStopSec=345\\n' > {folder}/stop.conf")
        self._must("systemctl daemon-reload")
        stream = self._client.start_chat(MODEL, stream=True, max_tokens=TOKENS)
        stream.until(lambda it: len(it.events) > 2)
        self._must("systemctl stop --no-block lemonbus")
        assert stream.finish(60).done, "the stream ended whole"
        wait_for(lambda: self._shell("systemctl is-active lemonbus") == "inactive", "it has stopped", 60)
        result = self._container.run("systemctl", "show", "-p", "Result", "--value", "lemonbus")
        assert result == "success", f"it stopped with {result}"
        assert not self._ours(), "nothing is left"


def _program(process: psutil.Process) -> str:
    """Return the path of what a process runs, ``""`` if it has ended."""
    try:
        return next(iter(process.cmdline()), "")
    except psutil.Error:
        return ""
