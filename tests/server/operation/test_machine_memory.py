"""What a server shows of the machine's memory: in health, system-info, metrics and status, with drivers that hang or die."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import StartServer
from tests.support.fakes.machines import FakeMachine
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

GIB = 1 << 30
CARD = "0000:03:00.0"
GRAPHICS = "0000:c4:00.0"
H100 = "0000:00:06.0"
NVML = Path(__file__).parents[2] / "support/fakes/nvml.c"
READ_DEVICES = "workers.jobs.read_devices"


def recorded_machine(root: Path) -> FakeMachine:
    """A machine with 64 GiB, in a control group that allows 8, with one card of AMD's and a processor with graphics."""
    machine = FakeMachine(root)
    machine.write("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 1000 kB\nMemAvailable: 60000000 kB\n")
    machine.write("proc/self/cgroup", "0::/ai.slice/lemonbus.service\n")
    machine.write("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    for file, size in (("memory.max", 8 * GIB), ("memory.current", 3 * GIB)):
        machine.write(f"sys/fs/cgroup/ai.slice/{file}", f"{size}\n")
    card = {"mem_info_vram_total": 24 * GIB, "mem_info_vram_used": 4 * GIB, "gpu_busy_percent": 93}
    named = {name: str(value) for name, value in card.items()}
    machine.device(CARD, "1002:744c:c8", "0x030000", "amdgpu", board_info="type : cem", product_name="Card", **named)
    graphics = {"mem_info_vram_total": str(GIB // 2), "mem_info_gtt_total": str(30 * GIB), "gpu_busy_percent": "5"}
    machine.device(GRAPHICS, "1002:150e:c1", "0x038000", "amdgpu", **graphics)
    return machine


def memory(server: LemonbusServer) -> dict[str, dict[str, Any]]:
    """Return place → what health says of it."""
    return {each["place"]: each for each in server.state()["memory"]}


def job_pids(server: LemonbusServer) -> list[int]:
    return [each.pid for each in server.process_tree() if each.runs(READ_DEVICES)]


def test_the_memory_of_host_and_devices_is_shown_everywhere(start_server: StartServer, tmp_path: Path) -> None:
    machine = recorded_machine(tmp_path / "machine")
    server = start_server("tiny-chat", machine_dir=str(machine.root))
    card = wait_for(lambda: memory(server).get(CARD), "the card was read")
    age = card.pop("age_seconds")
    assert 0 <= age < 60
    assert card == {
        "place": CARD,
        "name": "Card",
        "total_bytes": 24 * GIB,
        "free_bytes": 20 * GIB,
        "limited_by": "",
        "utilization_percent": 93.0,
    }
    host = {
        "place": "host",
        "name": "",
        "total_bytes": 8 * GIB,
        "free_bytes": 5 * GIB,
        "limited_by": "/ai.slice",
        "utilization_percent": None,
        "age_seconds": 0.0,
    }
    assert memory(server)["host"] == host
    places = server.client.get("/v1/system-info").json()["memory"]
    assert places[0] == host
    assert [place["place"] for place in places] == ["host", CARD]
    used = server.client.get("/v1/system-stats").json()
    assert used.pop("memory")[0] == host
    assert used == {
        "cpu_percent": None,
        "npu_percent": None,
        "gpu_percent": 93.0,
        "vram_gb": 4.0,
        "memory_gb": round((67_108_864 - 60_000_000) / (1 << 20), 2),  # of the machine, whatever the group allows
    }
    assert server.client.get("/api/system/status").json()["stats"]["memory_total_bytes"] == 8 * GIB
    models = {each["id"]: each for each in server.client.get("/v1/models?show_all=true").json()["data"]}
    # 0.8 of the 8 GiB that the control group allows, and of what the kernel shows of the cards.
    assert "models may use 27" in models["gpt-oss-120b-mxfp-GGUF"]["unsupported_reason"]
    directories = {"cache", "models", "state"}
    wait_for(lambda: {disk["directory"] for disk in server.state()["disks"]} == directories, "the disks are known")
    disks = server.state()["disks"]
    assert all(0 <= disk["free_bytes"] <= disk["size_bytes"] for disk in disks)
    text = server.client.get("/metrics").body.decode()
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["lemonbus_memory_total_bytes", "host"] == 8 * GIB
    assert samples["lemonbus_memory_free_bytes", CARD] == 20 * GIB
    assert samples["lemonbus_device_info", CARD, CARD, "Card"] == 1
    assert samples["lemonbus_device_info", "", GRAPHICS, "host"] == 1
    assert samples["lemonbus_device_utilization_ratio", CARD] == 0.93
    assert samples["lemonbus_device_utilization_ratio", GRAPHICS] == 0.05
    assert samples["lemonbus_disk_free_bytes", "cache"] > 0


def test_a_card_is_read_again_and_again_and_after_its_job_was_killed(start_server: StartServer, tmp_path: Path) -> None:
    machine = recorded_machine(tmp_path / "machine")
    server = start_server("tiny-chat", machine_dir=str(machine.root))
    wait_for(lambda: CARD in memory(server), "the card was read")
    used = f"sys/bus/pci/devices/{CARD}/mem_info_vram_used"
    machine.write(used, f"{5 * GIB}\n")
    wait_for(lambda: memory(server)[CARD]["free_bytes"] == 19 * GIB, "it was read again")
    (job,) = job_pids(server)
    os.kill(job, signal.SIGKILL)
    machine.write(used, f"{6 * GIB}\n")
    wait_for(lambda: memory(server)[CARD]["free_bytes"] == 18 * GIB, "another job has read it", 30.0)
    assert job not in job_pids(server)


def test_another_supervisor_reads_the_devices(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("tiny-chat", machine_dir=str(recorded_machine(tmp_path / "machine").root))
    wait_for(lambda: CARD in memory(server), "the card was read")
    former = job_pids(server)
    os.kill(server.supervisor_pid, signal.SIGKILL)
    wait_for(lambda: server.health()["status"] == "ok" and CARD in memory(server), "the next one has read it", 30.0)
    wait_for(lambda: len(job_pids(server)) == 1 and job_pids(server) != former, "there is one job, a new one")


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a compiled stand-in for NVIDIA's library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc): a stand-in for libnvidia-ml.so.1 cannot be made")
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", NVML], check=True, timeout=120)
    return folder


def test_a_driver_that_hangs_delays_nothing(
    nvml: Path, start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine(tmp_path / "machine")
    machine.write(f"proc/driver/nvidia/gpus/{H100}/information", "Model: \t\t NVIDIA H100 80GB HBM3\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml))
    monkeypatch.setenv("FAKE_NVML", str(tmp_path))
    (tmp_path / "used").write_text(f"{2 * GIB}")
    server = start_server("tiny-chat", machine_dir=str(machine.root))
    gpu = wait_for(lambda: memory(server).get(H100), "the GPU was read")
    assert (gpu["name"], gpu["utilization_percent"]) == ("NVIDIA H100 80GB HBM3", 37.0)
    assert (gpu["total_bytes"], gpu["free_bytes"]) == (81079 << 20, (81079 - 2048) << 20)
    (tmp_path / "hang").touch()
    wait_for(lambda: memory(server)[H100]["age_seconds"] > 6, "its reading gets old", 30.0)
    assert any("was last read" in problem for problem in server.state()["problems"])
    (tmp_path / "used").write_text("0")
    (tmp_path / "hang").unlink()
    wait_for(lambda: memory(server)[H100]["free_bytes"] == 81079 << 20, "it is read again", 120.0)
    wait_for(lambda: not server.state()["problems"], "nothing is wrong any more")
