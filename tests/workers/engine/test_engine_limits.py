"""The limits of an engine: what a control group gets, in a recorded tree and in a real one; processors, nice value and user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.failures import Code, LemonbusError
from protocol.models.engine_limits import EngineLimits
from protocol.runtime.accounts import account_of, check_user
from protocol.runtime.control_groups import CPU, MEMORY, parent_of_engines
from supervisor.processes import engine_groups
from tests.support.fakes.recorded_host import V2_MOUNT, RecordedHost
from tests.support.waiting import wait_for
from workers.engine.engine_group import EngineGroup, cpu_files, memory_files
from workers.engine.limited_start import limited_command, some_processors

MIB = 1 << 20
HUNGRY = "print(len(b'x' * (512 << 20)))"


def run(program: str, limits: EngineLimits, group: EngineGroup | None = None) -> subprocess.CompletedProcess[str]:
    files = group.process_files if group else []
    command = limited_command([sys.executable, "-c", program], limits, files)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_files_of_a_group() -> None:
    whole = {"memory.max": str(1700 * MIB), "memory.swap.max": "0", "memory.oom.group": "1"}
    assert memory_files(1600 * MIB)[2] == whole
    assert list(memory_files(64 * MIB)[1].items()) == [
        ("memory.limit_in_bytes", str(96 * MIB)),
        ("memory.memsw.limit_in_bytes", str(96 * MIB)),
    ]
    assert cpu_files(1.5)[2] == {"cpu.max": "150000 100000"}
    assert cpu_files(0.01)[1] == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "1000"}


def test_a_group_of_version_2_is_beside_that_of_the_server(tmp_path: Path) -> None:
    host = RecordedHost(tmp_path).process("0::/s/lemonbus-server\n", V2_MOUNT.format(top="/"))
    host.write("sys/fs/cgroup/s/cgroup.subtree_control", "cpu memory\n")
    group = EngineGroup(2.0, 64 * MIB, host.root)
    folder = host.root / f"sys/fs/cgroup/s/lemonbus-engine-{os.getpid()}"
    assert group.folders == [folder]
    assert (folder / "cpu.max").read_text() == "200000 100000"
    assert (folder / "memory.max").read_text() == str(96 * MIB)


def test_there_is_none_without_limits(tmp_path: Path) -> None:
    host = RecordedHost(tmp_path).process("0::/s/lemonbus-server\n", V2_MOUNT.format(top="/"))
    host.write("sys/fs/cgroup/s/cgroup.subtree_control", "cpu memory\n")
    assert EngineGroup(0.0, 0, host.root).folders == []
    assert not list((host.root / "sys/fs/cgroup/s").glob("lemonbus-engine-*"))


def test_a_kernel_that_refuses_the_values_leaves_none(tmp_path: Path) -> None:
    host = RecordedHost(tmp_path).process("0::/s/lemonbus-server\n", V2_MOUNT.format(top="/"))
    host.write("sys/fs/cgroup/s/cgroup.subtree_control", "memory\n")
    folder = host.root / f"sys/fs/cgroup/s/lemonbus-engine-{os.getpid()}"
    (folder / "memory.max").mkdir(parents=True)
    assert EngineGroup(0.0, 64 * MIB, host.root).folders == []


def test_a_kernel_that_does_not_count_swap_limits_the_rest(tmp_path: Path) -> None:
    host = RecordedHost(tmp_path).process("0::/s/lemonbus-server\n", V2_MOUNT.format(top="/"))
    host.write("sys/fs/cgroup/s/cgroup.subtree_control", "memory\n")
    folder = host.root / f"sys/fs/cgroup/s/lemonbus-engine-{os.getpid()}"
    (folder / "memory.swap.max").mkdir(parents=True)  # it cannot be written
    assert EngineGroup(0.0, 64 * MIB, host.root).folders == [folder]
    assert (folder / "memory.max").read_text() == str(96 * MIB)
    assert (folder / "memory.oom.group").read_text() == "1"


# ---- a real group ------------------------------------------------------------------------------------------------


@contextmanager
def real_group(cpus: float = 0.0, memory: int = 0) -> Iterator[EngineGroup]:
    for controller, limited in ((MEMORY, memory), (CPU, cpus)):
        if limited and parent_of_engines(controller) is None:
            pytest.skip(f"no control group that limits the {controller} of an engine can be made here")
    group = EngineGroup(cpus, memory)
    folders = list(group.folders)
    yield group
    group.remove()
    wait_for(lambda: _removed(folders), "the groups can be removed: no process is left in them")


def test_the_kernel_ends_what_takes_more_memory_at_once() -> None:
    with real_group(memory=32 * MIB) as group:
        done = run(HUNGRY, EngineLimits(), group)
        assert done.returncode == -9
        assert group.kernel_kills() == 1


def test_it_says_so_of_its_own_process_only() -> None:
    with real_group(memory=64 * MIB) as group:
        assert run("print(1)", EngineLimits(), group).stdout == "1\n"
        assert group.kernel_kills() == 0


def test_processor_time_is_limited() -> None:
    with real_group(cpus=0.5) as group:
        done = run("print(open('/proc/self/cgroup').read())", EngineLimits(cpus=0.5), group)
        assert f"lemonbus-engine-{os.getpid()}" in done.stdout
        done = run("import os; print(len(os.sched_getaffinity(0)))", EngineLimits(cpus=0.5), group)
        assert int(done.stdout) == len(os.sched_getaffinity(0)), "it may use each of them for a part of the time"


def test_a_group_with_processes_is_emptied() -> None:
    with real_group(memory=64 * MIB) as group:
        command = limited_command(["sleep", "600"], EngineLimits(), group.process_files)
        with subprocess.Popen(command) as sleeper:
            wait_for(lambda: Path(f"/proc/{sleeper.pid}/comm").read_text() == "sleep\n", "it has become the program")
            folders = list(group.folders)
            group.remove()
            assert sleeper.wait(30) == -9
        wait_for(lambda: _removed(folders), "the groups are empty")


def _removed(folders: list[Path]) -> bool:
    for folder in folders:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def test_the_group_of_a_worker_that_has_ended_is_removed_and_no_other() -> None:
    with real_group(memory=64 * MIB) as group:
        (own,) = group.folders
        ended = subprocess.Popen(["true"])
        ended.wait()
        old, foreign = own.with_name(f"lemonbus-engine-{ended.pid}"), own.with_name("lemonbus-engine-of-mine")
        old.mkdir()
        foreign.mkdir()
        engine_groups.remove_old()
        assert (old.exists(), foreign.exists(), own.exists()) == (False, True, True)
        foreign.rmdir()


# ---- without a group ---------------------------------------------------------------------------------------------


def test_without_a_group_an_engine_has_whole_processors() -> None:
    done = run("import os; print(os.sched_getaffinity(0))", EngineLimits(cpus=0.5))
    assert len(done.stdout.split(",")) == 1
    assert some_processors(10_000) == sorted(os.sched_getaffinity(0))


def test_the_nice_value_is_added() -> None:
    done = run("import os; print(os.nice(0))", EngineLimits(nice=3))
    assert int(done.stdout) == min(19, os.nice(0) + 3)


def test_another_user() -> None:
    if os.geteuid():
        pytest.skip("only root can start a process as another user")
    account = account_of("daemon")
    script = "id -u; id -g; id -G; echo written > /dev/stdout; echo an error > /dev/stderr"
    command = limited_command(["/bin/sh", "-c", script], EngineLimits(user="daemon"), [])
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    user, group, groups, written = done.stdout.splitlines()
    assert (user, group, written) == (str(account.user), str(account.group), "written")
    assert set(map(int, groups.split())) == set(account.groups)
    assert done.stderr == "an error\n"


def test_output_to_a_file_does_not_change_its_owner(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can start a process as another user")
    with (tmp_path / "log").open("w") as log:
        command = limited_command(["/bin/true"], EngineLimits(user="daemon"), [])
        subprocess.run(command, stdout=log, stderr=log, check=True, timeout=60)
    assert (tmp_path / "log").stat().st_uid == 0


def test_another_users_program_gets_the_variables_of_that_user() -> None:
    entry = pwd.getpwnam("daemon")
    given = {"HOME": "/root", "USER": "root", "XDG_CACHE_HOME": "/root/.cache", "XDG_RUNTIME_DIR": "/run/user/0"}
    assert account_of("daemon").environment({**given, "PATH": "/bin", "HF_HOME": "/srv/hf"}) == {
        "PATH": "/bin",
        "HF_HOME": "/srv/hf",
        "HOME": entry.pw_dir,
        "USER": "daemon",
        "LOGNAME": "daemon",
        "SHELL": entry.pw_shell,
    }
    assert account_of(str(entry.pw_uid)) == account_of("daemon")


def test_an_engine_of_another_user_dies_with_its_worker() -> None:
    if os.geteuid():
        pytest.skip("only root can start a process as another user")
    starter = (
        "import subprocess, sys, time\n"
        "from protocol.models.engine_limits import EngineLimits\n"
        "from workers.engine.limited_start import limited_command\n"
        "child = subprocess.Popen(limited_command(['/bin/sleep', '600'], EngineLimits(user='daemon'), []))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        wait_for(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", "it has become the program")
        assert Path(f"/proc/{child}").stat().st_uid == account_of("daemon").user
        parent.kill()
    wait_for(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child), "the kernel ended it")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_user_is_checked_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_user("") is None
    assert check_user(str(os.geteuid())) is None
    with pytest.raises(LemonbusError) as missing:
        check_user("no-such-user")
    assert missing.value.failure.code is Code.INVALID_REQUEST
    other = next(each for each in pwd.getpwall() if each.pw_uid != 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(LemonbusError, match="only root can start an engine as another user"):
        check_user(other.pw_name)
