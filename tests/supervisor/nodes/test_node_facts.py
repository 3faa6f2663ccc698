"""What an agent says of its node, on machines that are only files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.models.devices import Device
from supervisor.nodes.node_facts import read_node_facts, usable_backends
from tests.support.fakes.machines import laptop


def test_the_facts_of_a_laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "flm").touch(mode=0o755)
    settings = Settings(machine_dir=str(laptop(tmp_path).root), cache_dir=str(tmp_path / "cache"))
    facts = read_node_facts(settings, "gpu1", "10.0.0.2", {"zone": "west"}, {"npu": 1})
    assert (facts.name, facts.address, facts.labels, facts.resources) == (
        "gpu1",
        "10.0.0.2",
        {"zone": "west"},
        {"npu": 1},
    )
    assert facts.devices == [Device.CPU, Device.AMD_GPU, Device.AMD_NPU]
    assert facts.cpus == len(os.sched_getaffinity(0))
    assert facts.memory > 1 << 28
    assert "flm:npu" in facts.backends


def test_a_backend_is_usable_if_it_is_installed_and_the_devices_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = Settings(cache_dir=str(tmp_path / "cache"))
    assert "flm:npu" not in usable_backends(settings, [Device.CPU, Device.AMD_NPU])
    (tmp_path / "flm").touch(mode=0o755)
    assert "flm:npu" in usable_backends(settings, [Device.CPU, Device.AMD_NPU])
    assert "flm:npu" not in usable_backends(settings, [Device.CPU])
    assert not [each for each in usable_backends(settings, [Device.CPU]) if each.endswith(":default")]
