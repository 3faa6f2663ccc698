"""``GET system-info`` as documents 000 and 001 show it, on this machine and on machines made of files."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.api.lemonade.system_info import system_info
from protocol.messages.system_info import SystemInfo
from supervisor.handlers.system_info import merge_probe
from supervisor.machine.hardware import read_machine_from
from tests.compatibility.conftest import RunCommand
from tests.compatibility.field_paths import missing
from tests.conftest import StartServer
from tests.support.clients.http_client import run_concurrently
from tests.support.fakes import driver_tools
from tests.support.fakes.machines import RYZEN, laptop, workstation
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for
from workers.jobs.probe import probe

ESSENTIAL = ["OS Version", "Processor", "Physical Memory"]
CPU = [f"devices.cpu.{key}" for key in ("name", "cores", "threads", "available")]
LEMONADE = [
    *ESSENTIAL,
    *CPU,
    "devices.cpu.family",
    *(f"recipes.{recipe}.backends" for recipe in ("llamacpp", "whispercpp", "sd-cpp", "flm", "ryzenai-llm")),
    "recipes.llamacpp.default_backend",
    *(f"recipes.llamacpp.backends.cpu.{key}" for key in ("devices", "state", "message", "action", "version")),
    *(f"recipes.llamacpp.backends.{name}.state" for name in ("vulkan", "rocm", "metal")),
    *(f"recipes.{recipe}.backends.default.state" for recipe in ("whispercpp", "sd-cpp", "flm", "ryzenai-llm")),
]
SPEC = [*ESSENTIAL, *CPU, "devices.amd_igpu", "devices.amd_dgpu", "devices.npu"]
OF_WINDOWS = {"OEM System", "BIOS Version", "CPU Max Clock", "Windows Power Setting"}
STATES = {"unsupported", "installable", "update_required", "installed"}


def info(server: LemonbusServer, query: str = "", prefix: str = "/v1") -> Any:
    answer = server.client.get(f"{prefix}/system-info{query}")
    assert answer.status == 200, answer
    return answer.json()


# GET /v1/system-info, document 000; GET /api/v1/system-info, document 001


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_every_documented_field_is_there(shared_server: LemonbusServer, prefix: str) -> None:
    body = info(shared_server, prefix=prefix)
    assert missing(body, [*LEMONADE, *SPEC]) == []
    assert not OF_WINDOWS & set(body)
    assert isinstance(body["devices"]["amd_igpu"], dict)
    assert isinstance(body["devices"]["amd_dgpu"], list)
    assert isinstance(body["devices"]["npu"], dict)
    assert "Python Packages" not in body


def test_the_values_are_this_machines(shared_server: LemonbusServer) -> None:
    body = info(shared_server)
    cpu = body["devices"]["cpu"]
    assert cpu["name"] == body["Processor"] != ""
    assert cpu["threads"] == psutil.cpu_count()
    assert cpu["cores"] == psutil.cpu_count(logical=False)
    assert (cpu["available"], cpu["family"]) == (True, platform.machine())
    assert body["Physical Memory"] == f"{psutil.virtual_memory().total / 2**30:.1f} GB"
    assert platform.release() in body["OS Version"]


def test_recipes_follow_the_documents_rules(shared_server: LemonbusServer) -> None:
    for recipe, about in info(shared_server)["recipes"].items():
        states = [backend["state"] for backend in about["backends"].values()]
        assert set(states) <= STATES, recipe
        assert ("default_backend" in about) == any(state != "unsupported" for state in states), recipe
        for backend in about["backends"].values():
            installed, unsupported = backend["state"] == "installed", backend["state"] == "unsupported"
            assert (backend["message"] == "") == installed, (recipe, backend)
            assert not (unsupported and backend["devices"]), (recipe, backend)
    assert info(shared_server)["recipes"]["llamacpp"]["backends"]["metal"]["state"] == "unsupported"


def test_head_is_get_without_a_body_and_other_methods_are_refused(shared_server: LemonbusServer) -> None:
    head = shared_server.client.start("HEAD", "/v1/system-info").finish()
    assert (head.status, head.body) == (200, b"")
    wrong = shared_server.client.post("/v1/system-info", {})
    assert wrong.status == 405
    assert "GET" in wrong.headers["allow"]


def test_verbose_is_true_or_false(shared_server: LemonbusServer) -> None:
    wrong = shared_server.client.get("/v1/system-info?verbose=maybe")
    assert (wrong.status, wrong.error["param"]) == (400, "verbose")
    assert "Python Packages" not in info(shared_server, "?verbose=false")


# GET /api/v1/system-info?verbose=true, document 001


def test_verbose_adds_python_packages_and_more(shared_server: LemonbusServer) -> None:
    body = info(shared_server, "?verbose=true", "/api/v1")
    assert missing(body, [*LEMONADE, *SPEC, "Python Packages", "lemonbus.version", "lemonbus.kernel"]) == []
    packages = dict(line.split("==") for line in body["Python Packages"])
    assert packages["msgspec"]
    assert body["lemonbus"]["python"] == platform.python_version()
    assert body["lemonbus"]["memory_bytes"] == psutil.virtual_memory().total


# devices, documents 000 and 001


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for fakes of the vendors' tools; it is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", driver_tools.path(folder))
    return folder


@pytest.fixture
def start_on_machine(start_server: StartServer, tmp_path: Path, programs: Path) -> Any:
    """Starts a server on a fake machine (files), with fakes of the vendors' tools."""

    def start(machine: Any, **variables: str) -> LemonbusServer:
        for name, value in variables.items():
            driver_tools.put(programs, name.replace("_", "-"), value)
        return start_server("tiny-chat", machine_dir=str(machine(tmp_path / "machine").root))

    return start


def test_the_documents_own_laptop(laptop_server: LemonbusServer) -> None:
    body = info(laptop_server)
    devices = body["devices"]
    assert body["Processor"] == RYZEN
    assert devices["cpu"].items() >= {"name": RYZEN, "available": True, "family": platform.machine()}.items()
    (gpu,) = devices["amd_gpu"]
    assert gpu.items() >= {
        "name": "AMD Radeon 890M Graphics",
        "vram_gb": 0.5,
        "memory_mb": 512,
        "driver_version": "6.14.0-test",
        "available": True,
        "family": "gfx1150",
    }.items()  # fmt: skip
    assert devices["amd_igpu"] == gpu
    assert devices["amd_dgpu"] == []
    assert devices["nvidia_gpu"] == []
    assert devices["npu"] == devices["amd_npu"]
    assert devices["npu"] == {
        "name": "RyzenAI-npu4",
        "driver_version": "6.14.0-test",
        "power_mode": "Unknown",
        "available": True,
        "family": "XDNA2",
    }
    assert body["recipes"]["flm"]["backends"]["default"]["state"] != "unsupported"
    assert body["recipes"]["llamacpp"]["backends"]["cpu"]["devices"] == ["cpu"]


def test_the_mode_of_an_npu_comes_from_its_tool(programs: Path, tmp_path: Path) -> None:
    driver_tools.put(programs, "xrt-smi", driver_tools.XRT)
    known = merge_probe(read_machine_from(laptop(tmp_path / "machine").root), probe())
    assert system_info(SystemInfo(known, {}), verbose=False).devices.npu.power_mode == "Performance"


def test_a_workstations_devices_come_from_its_makers_tools_which_run_once(
    start_on_machine: Any, programs: Path
) -> None:
    server = start_on_machine(workstation, nvidia_smi=driver_tools.NVIDIA, rocm_smi=driver_tools.ROCM_JSON)
    first = run_concurrently(6, lambda _: info(server, "?verbose=true"))
    assert all(body["devices"] == first[0]["devices"] and body["Python Packages"] for body in first)
    devices = info(server)["devices"]
    assert devices == first[0]["devices"]
    assert driver_tools.runs(programs, "nvidia-smi") == driver_tools.runs(programs, "rocm-smi") == 1
    wait_for(lambda: not [each for each in server.process_tree() if each.runs("workers.jobs.probe")], "the job is gone")
    assert devices["amd_igpu"] == devices["npu"] == devices["amd_npu"] == {"available": False}
    assert devices["amd_gpu"] == devices["amd_dgpu"]
    (amd,) = devices["amd_gpu"]
    assert (amd["family"], amd["vram_gb"], amd["driver_version"]) == ("gfx1100", 24.0, "6.8.5")
    ours, given_away = devices["nvidia_gpu"]
    assert (ours["name"], ours["vram_gb"], ours["driver_version"]) == ("NVIDIA GeForce RTX 4090", 24.0, "550.54.14")
    assert (ours["available"], ours["family"], ours["memory_mb"]) == (True, "sm_89", 24564)
    assert (given_away["available"], given_away["vram_gb"]) == (False, None)


def test_without_tools_nothing_is_started_for_it(laptop_server: LemonbusServer) -> None:
    server = laptop_server
    before = {each.pid for each in server.process_tree()}
    info(server)
    assert not [each for each in server.process_tree() if each.pid not in before and each.runs("workers.jobs.probe")]


def test_a_killed_job_costs_only_its_own_facts(start_on_machine: Any, tmp_path: Path) -> None:
    server = start_on_machine(workstation)
    hangs = tmp_path / "hangs"
    os.mkfifo(hangs)
    driver_tools.put(tmp_path / "bin", "rocm-smi", instead=f"/bin/cat {hangs}")
    asked = server.client.start("GET", "/v1/system-info?verbose=true")
    wait_for(lambda: driver_tools.runs(tmp_path / "bin", "rocm-smi") == 1, "the tool hangs")
    assert server.health()["status"] == "ok", "no other request waits"
    (job,) = [each for each in server.process_tree() if each.runs("workers.jobs.probe")]
    os.kill(job.pid, signal.SIGKILL)
    body = asked.finish().json()
    assert "Python Packages" not in body
    assert body["devices"]["amd_gpu"][0]["driver_version"] == "6.14.0-test"
    assert any(line["event"] == "the inspection of the machine ended without a result" for line in server.lines)


# the terminal


def test_the_terminal_shows_it(laptop_server: LemonbusServer, lemonbus: RunCommand) -> None:
    def system_info(*words: str) -> str:
        code, out, err = lemonbus(laptop_server, "system-info", *words)
        assert code == 0, err
        return out

    shown = system_info()
    assert f"Processor:        {RYZEN}" in shown
    assert re.search(r"^amd_npu +RyzenAI-npu4 +power mode Unknown +XDNA2 +6.14.0-test +yes$", shown, re.MULTILINE)
    assert re.search(r"^amd_gpu +AMD Radeon 890M Graphics +0.5 GB +gfx1150", shown, re.MULTILINE)
    assert re.search(r"^llamacpp:cpu.* installed ", shown, re.MULTILINE)
    assert "ASUSTeK" in system_info("--verbose")
    shown_as_json, answered = json.loads(system_info("--json")), info(laptop_server)
    assert (
        [each["place"] for each in shown_as_json.pop("memory")]
        == ["host"]
        == [each["place"] for each in answered.pop("memory")]
    )
    assert shown_as_json == answered


def test_the_present_use_of_this_machine(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.get("/v1/system-stats").json()
    assert 0 <= answer["cpu_percent"] <= 100
    assert answer["memory_gb"] > 0
    assert {"gpu_percent", "vram_gb", "npu_percent"} <= set(answer)
    assert shared_server.client.start("HEAD", "/v1/system-stats").finish().status == 200
