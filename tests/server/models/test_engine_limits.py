"""Limits of engines by the configuration: a real server applies them, changes them with a reload, and leaves no control group."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.runtime.control_groups import CPU, MEMORY, parent_of_engines
from tests.conftest import StartServer
from tests.support import processes
from tests.support.configuration_file import ConfiguredServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
MIB = 1 << 20
IDS = ("Uid", "Gid", "Groups")
PERL = "/usr/bin/perl"
"""An essential package of Debian. Not every user may run the Python of these tests, which may be in a home directory."""
PERL_SERVER = r"""
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], Listen => 9, ReuseAddr => 1) or die $@;
my $answer = '{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}';
while (my $client = $listener->accept) {
    my $length = 0;
    while (my $line = <$client>) {
        $length = $1 if $line =~ /^content-length: (\d+)/i;
        last if $line =~ /^\r\n$/;
    }
    read $client, my $body, $length;
    print $client "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ", length $answer, "\r\n\r\n", $answer;
    close $client;
}
"""
LIMITS = f'[models."{CHAT}"]\nmemory_limit = {400 * MIB}\ncpus = 1.5\nnice = 4\n'


@pytest.fixture(scope="module")
def server() -> Iterator[ConfiguredServer]:
    with ConfiguredServer("tiny-chat", "tiny-loop", sections=LIMITS, gateway_workers=1, threads=0) as server:
        yield server


@pytest.fixture
def changing_server() -> Iterator[ConfiguredServer]:
    """One whose settings and processes a test changes."""
    with ConfiguredServer("tiny-chat", sections=LIMITS, gateway_workers=1, threads=1) as server:
        yield server


def groups_of(pid: int) -> dict[str, Path]:
    """Return controller → the folder of the group of an engine, for those that limit it."""
    parents = {controller: parent_of_engines(controller) for controller in (MEMORY, CPU)}
    worker = processes.look(pid)
    assert worker is not None
    name = f"lemonbus-engine-{worker.parent}"
    return {controller: parent.path / name for controller, parent in parents.items() if parent}


def test_an_engine_has_its_limits_and_no_other_engine_has_them(server: ConfiguredServer) -> None:
    for model in (CHAT, LOOP):
        assert server.client.chat(model, max_tokens=1).status == 200
    limited, other = server.engine(CHAT), server.engine(LOOP)
    assert os.getpriority(os.PRIO_PROCESS, limited.pid) == min(19, os.getpriority(os.PRIO_PROCESS, other.pid) + 4)
    assert limited.option("-t") == "2", "as many threads as it has processors"
    assert other.option("-t") == ""
    for folder in groups_of(limited.pid).values():
        assert str(limited.pid) in (folder / "cgroup.procs").read_text().split()
    for folder in groups_of(other.pid).values():
        assert not folder.exists()


def test_memory_is_taken_from_engines_first_then_from_workers(server: ConfiguredServer) -> None:
    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    assert server.client.chat(CHAT, max_tokens=1).status == 200
    engine, worker = server.engine_pid(CHAT), server.worker_pid(CHAT)
    others = [server.supervisor_pid, server.keeper_pid, *server.gateway_pids()]
    assert score(engine) > score(worker) > max(map(score, others))


def test_a_reload_applies_other_limits_to_another_engine(changing_server: ConfiguredServer) -> None:
    server = changing_server
    assert server.client.chat(CHAT, max_tokens=1).status == 200
    before = server.engine_pid(CHAT)
    server.configure(sections=LIMITS.replace("nice = 4", "nice = 7"))
    (change,) = server.reload()["changes"]
    assert (change["setting"], change["effects"]) == (f'models."{CHAT}".nice', ["the model is reloaded when idle"])
    wait_for(lambda: (now := server.engine_now(CHAT)) and now.pid != before, "another engine serves")
    server.wait_loaded(CHAT)
    usual = os.getpriority(os.PRIO_PROCESS, server.keeper_pid)
    assert os.getpriority(os.PRIO_PROCESS, server.engine_pid(CHAT)) == min(19, usual + 7)


def test_the_groups_of_engines_go_with_them_even_if_a_worker_is_killed(changing_server: ConfiguredServer) -> None:
    server = changing_server
    assert server.client.chat(CHAT, max_tokens=1).status == 200
    first = groups_of(server.engine_pid(CHAT))
    if not first:
        pytest.skip("no control group for an engine can be made here")
    processes.kill(server.worker_pid(CHAT))
    wait_for(lambda: not any(folder.exists() for folder in first.values()), "the supervisor removed them", 30.0)
    server.wait_loaded(CHAT)
    second = groups_of(server.engine_pid(CHAT))
    assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    wait_for(lambda: not any(folder.exists() for folder in second.values()), "the worker removed them")


def test_what_cannot_be_applied_is_said(changing_server: ConfiguredServer) -> None:
    server, supervisor = changing_server, changing_server.supervisor_pid
    server.configure(sections=f'[models."{CHAT}"]\nuser = "no-such-user"\n')
    (warning,) = server.reload()["warnings"]
    assert f'models."{CHAT}".user: the model cannot be loaded: user: this machine has no user no-such-user' in warning
    wait_for(lambda: server.supervisor_pid != supervisor, "a supervisor with these settings has taken over")
    refused = server.client.chat(CHAT, max_tokens=1)
    assert refused.status == 500
    assert refused.error["code"] == "model_unusable"
    assert "this machine has no user no-such-user" in refused.error["message"]
    event = "limit of engines cannot be enforced"
    wait_for(lambda: [line for line in server.lines if line["event"] == event], "the log says so")
    text = f'models."{CHAT}".user: the model cannot be loaded: user: this machine has no user no-such-user'
    assert text in server.state()["problems"]


def test_an_engine_runs_as_another_user(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("only root can start an engine as another user")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    account = pwd.getpwnam("nobody")
    command = [PERL, "-e", PERL_SERVER, "{port}", "models/{name}"]
    models = {
        "own": {"command": command, "user": "nobody"},
        "homed": {"command": command, "user": str(account.pw_uid), "env": {"HOME": "/srv/engines"}},
    }
    server = start_server(models=models, gateway_workers=1)
    for model, home in (("own", account.pw_dir), ("homed", "/srv/engines")):
        assert server.client.chat(model).status == 200
        engine, worker = server.engine_pid(model), server.worker_pid(model)
        lines = Path(f"/proc/{engine}/status").read_text().splitlines()
        status = {
            name: set(map(int, ids.split())) for name, _, ids in (line.partition(":") for line in lines) if name in IDS
        }
        groups = set(os.getgrouplist("nobody", account.pw_gid))
        assert status == {"Uid": {account.pw_uid}, "Gid": {account.pw_gid}, "Groups": groups}
        pairs = Path(f"/proc/{engine}/environ").read_text().split("\0")
        variables = dict(pair.split("=", 1) for pair in pairs if pair)
        assert [variables[name] for name in ("HOME", "USER", "LOGNAME")] == [home, "nobody", "nobody"]
        assert "XDG_CONFIG_HOME" not in variables
        assert Path(f"/proc/{worker}").stat().st_uid == 0
    engine = server.engine_pid("own")
    assert server.client.post("/v1/unload", {"model_name": "own"}).status == 200
    assert not processes.alive(engine)
    engine = server.engine_pid("homed")
    processes.kill(server.worker_pid("homed"))
    wait_for(lambda: not processes.alive(engine), "the engine of another user ends with its worker")
