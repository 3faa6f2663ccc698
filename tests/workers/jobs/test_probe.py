"""The probe job with fake tools of device makers: their arguments, their output, and their failures."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.messages.system_info import Gpu, MachineProbed, ProgramStatus
from tests.support.fakes import driver_tools as tools
from workers.jobs import driver_tools as smi
from workers.jobs import flm
from workers.jobs.probe import packages, probe

RTX = Gpu("0000:41:00.0", "NVIDIA GeForce RTX 4090", "sm_89", 24564 << 20, "nvidia", "550.54.14")
RADEON = Gpu("0000:03:00.0", "AMD Radeon RX 7900 XTX", "gfx1100", 25753026560, "amdgpu", "6.8.5")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the fake tools; there are no others on PATH."""
    found = tmp_path / "bin"
    monkeypatch.setenv("PATH", tools.path(found))
    return found


def test_without_tools_there_are_only_packages(folder: Path) -> None:
    found = probe()
    assert found == MachineProbed(packages=found.packages)
    assert f"msgspec=={msgspec.__version__}" in found.packages
    assert f"pytest=={importlib.metadata.version('pytest')}" in found.packages
    assert found.packages == sorted(found.packages, key=lambda line: line.partition("==")[0].lower())
    assert found.packages == packages()


def test_all_tools_are_asked(folder: Path) -> None:
    tools.put(folder, "nvidia-smi", tools.NVIDIA)
    tools.put(folder, "rocm-smi", "WARNING: it is hot\n" + tools.ROCM_JSON)
    tools.put(folder, "xrt-smi", tools.XRT)
    found = probe()
    assert (found.nvidia_gpus, found.amd_gpus, found.npu_power_mode) == ([RTX], [RADEON], "Performance")
    assert found.probe_errors == []


def test_a_llama_server_is_asked_for_its_devices(folder: Path) -> None:
    assert probe("llama-server").program_devices == {}
    tools.put(
        folder, "llama-server", "Available devices:\n  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80552 MiB free)\n"
    )
    assert probe().program_devices == {}
    assert probe("llama-server").program_devices == {"llamacpp:system": ["cpu", "nvidia_gpu"]}
    tools.put(folder, "llama-server", "error: invalid argument: --list-devices\n", status=1)
    found = probe("llama-server")
    assert (found.program_devices, found.probe_errors) == ({}, [])


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ('{"ready":true,"all_fw_ok":true}', ""),
        ('[FLM]  Hello\n{"ready":false,"all_fw_ok":false,"kernel_ok":true}', "flm cannot use the NPU: the NPU's firmware is too old."),
        ('{"ready":false,"amd_device_found":false,"memlock_ok":false}', "flm cannot use the NPU: it finds no NPU; too little memory may be locked (`ulimit -l`)."),
        ('{"ready":false}', "flm cannot use the NPU: see `flm validate`."),
    ],
)  # fmt: skip
def test_why_flm_cannot_run_here(folder: Path, output: str, problem: str) -> None:
    tools.put(folder, "flm", output, status=int("false" in output))
    found = probe()
    status = found.programs.get("flm", ProgramStatus())
    assert (status.problem, found.probe_errors) == (problem, [])
    assert (status.action == "flm validate") == bool(problem)


@pytest.mark.parametrize(
    ("output", "version"),
    [('{"version":"1.0.5"}\n', "1.0.5"), ("FLM v0.9.35\n", "0.9.35"), ("Unknown command: version\n", ""), ("", "")],
)
def test_the_version_of_flm(folder: Path, output: str, version: str) -> None:
    tools.put(folder, "flm", output, status=int(not version))
    assert flm.version() == version


def test_an_flm_without_validate_is_a_probe_error(folder: Path) -> None:
    tools.put(folder, "flm", "Invalid command: validate", status=1)
    found = probe()
    assert (found.programs, len(found.probe_errors)) == ({}, 1)


def test_an_older_nvidia_smi_is_asked_less(folder: Path) -> None:
    refuses = 'case "$*" in *compute_cap*) echo "Field \\"compute_cap\\" is not a valid field to query."; exit 2;; esac'
    tools.put(folder, "nvidia-smi", "Tesla K80, 11441, 418.67, 00000000:00:04.0\n", instead=refuses)
    assert probe().nvidia_gpus == [Gpu("0000:00:04.0", "Tesla K80", "", 11441 << 20, "nvidia", "418.67")]
    assert tools.runs(folder, "nvidia-smi") == 2


@pytest.mark.parametrize(
    ("instead", "seconds", "problem"),
    [
        (
            *("echo 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9", 60.0),
            "ended with 9: NVIDIA-SMI has",
        ),
        ("exec /bin/sleep 60", 0.5, "did not answer within"),
    ],
)
def test_a_failing_tool_is_reported_and_the_others_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch, instead: str, seconds: float, problem: str
) -> None:
    run = subprocess.run

    def run_in_time(words: list[str], **how: Any) -> Any:
        return run(words, **{**how, "timeout": seconds if words[0].endswith("nvidia-smi") else 60.0})

    monkeypatch.setattr(subprocess, "run", run_in_time)
    tools.put(folder, "nvidia-smi", instead=instead)
    tools.put(folder, "rocm-smi", tools.ROCM_JSON)
    found = probe()
    assert (found.nvidia_gpus, found.amd_gpus) == ([], [RADEON])
    (output,) = found.probe_errors
    assert output.startswith("nvidia-smi ")
    assert problem in output


def test_a_file_that_is_not_a_program_is_reported(folder: Path) -> None:
    folder.mkdir()
    (folder / "xrt-smi").write_bytes(b"\x7fELF")
    (folder / "xrt-smi").chmod(0o755)
    assert probe().probe_errors == ["xrt-smi cannot be run: Exec format error"]


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("", []),
        ("No devices were found\n", []),
        ("a,b\n", []),
        (tools.NVIDIA + "NVIDIA L4, [N/A], 550.54.14, 00000001:C5:00.0, [N/A]\n", [RTX, "L4"]),
        ('"Card, with comma", 10, 1.0, 0000:01:00.0, 9.0\n', [Gpu("0000:01:00.0", "Card, with comma", "sm_90", 10 << 20, "nvidia", "1.0")]),
    ],
)  # fmt: skip
def test_output_of_nvidia_smi(output: str, found: list[Gpu | str]) -> None:
    unknown = Gpu("0001:c5:00.0", "NVIDIA L4", driver="nvidia", driver_version="550.54.14")
    assert smi.nvidia_gpus(output) == [unknown if each == "L4" else each for each in found]


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("{}", []),
        ('{"system": {"Driver version": "6"}}', []),
        ('{"card0": {"Card series": "Instinct", "PCI Bus": "0000:03:00.0"}}', [Gpu("0000:03:00.0", "Instinct", driver="amdgpu")]),
        ('{"card0": {"Card Series": "N/A", "Card Model": "0x1", "PCI Bus": "0000:0A:00.0", "VRAM Total Memory (B)": "N/A"}}',
         [Gpu("0000:0a:00.0", driver="amdgpu")]),
    ],
)  # fmt: skip
def test_output_of_rocm_smi(output: str, found: list[Gpu]) -> None:
    assert smi.amd_gpus(output) == found


@pytest.mark.parametrize("output", ["", "ROCm is not installed", "{", "[1]", '{"card0": 5}', "[" * 100_000])
def test_malformed_output_of_rocm_smi(output: str) -> None:
    with pytest.raises(smi.ToolError):
        smi.amd_gpus(output)


@pytest.mark.parametrize("output", ["", "No devices found", "Power Mode\n"])
def test_an_npu_without_a_power_mode(folder: Path, output: str) -> None:
    tools.put(folder, "xrt-smi", output)
    assert smi.npu_power_mode() == ""
