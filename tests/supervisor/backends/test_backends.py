"""Reports about each backend: its pins, its state, and which one is preferred."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, structs

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.messages.backend_installs import Archive, PinnedWheel, WheelFile
from protocol.messages.system_info import BackendStatus
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.models.recipes import BackendDescriptor, Provision
from supervisor.backends import inventory
from supervisor.backends.inventory import BackendInventory
from supervisor.backends.releases import DATA, BackendReleases, PinnedRelease
from workers.backends.registry import DESCRIPTORS

SUM = "ab" * 32
PIN = f"llamacpp:vulkan@b1=https://github.com/x/y.tar.gz#sha256={SUM}"
STATES = {"unsupported", "installable", "update_required", "installed"}


def settings(tmp_path: Path, **more: Any) -> Settings:
    return Settings(cache_dir=str(tmp_path), llama_server=str(tmp_path / "llama-server"), **more)


def backend(recipe: str, name: str) -> BackendDescriptor:
    found = DESCRIPTORS[recipe].backend(name)
    assert found is not None
    return found


def put(tmp_path: Path, recipe: str, name: str, version: str, digest: str) -> Path:
    folder = installations.backend_folder(str(tmp_path), recipe, name) / f"{version}-{digest}"
    folder.mkdir(parents=True)
    (folder / installations.RECORD_FILE).write_bytes(
        msgspec.json.encode(InstallationRecord(recipe, name, version, digest, "llama-server"))
    )
    return folder


def status(settings: Settings, recipe: str, name: str, *devices: str) -> BackendStatus:
    return BackendInventory(settings).status(recipe, backend(recipe, name), devices or ("cpu",), name)


# pins


def test_the_data_file_is_consistent() -> None:
    raw = msgspec.json.decode(DATA.read_bytes())
    for key, item in raw.items():
        recipe, _, name = key.partition(":")
        provision = backend(recipe, name).provision
        assert bool(item.get("wheels")) == (provision is Provision.WHEEL), key
        for archive in item.get("archives", {}).values():
            assert provision is Provision.ARCHIVE
            assert archive["url"].startswith("https://")
            assert re.fullmatch("([0-9a-f]{64})?", archive.get("sha256", ""))
        for wheel in item.get("wheels", []):
            distribution, _, version = wheel["requirement"].partition("==")
            assert version
            for file, facts in wheel["files"].items():
                assert file.lower().startswith(f"{distribution.replace('-', '_')}-{version}-"), file
                assert re.fullmatch("[0-9a-f]{64}", facts["sha256"]), file


def test_wheels_are_pinned_for_every_supported_python() -> None:
    pins = BackendReleases(Settings())
    for recipe, descriptor in DESCRIPTORS.items():
        for each in descriptor.backends:
            pin = pins.of(*inventory.installation_key(recipe, each))
            if each.provision is not Provision.WHEEL:
                continue
            assert pin is not None, (recipe, each.name)
            assert pin.complete
            for wheel in pin.wheels:
                for tag in ("cp311", "cp312", "cp313"):
                    for machine in ("x86_64", "aarch64"):
                        assert any(fits(file, tag, machine) for file in wheel.files), (wheel.requirement, tag, machine)


def fits(file: str, tag: str, machine: str) -> bool:
    python, abi, platform = file.removesuffix(".whl").split("-")[-3:]
    return (machine in platform or platform == "any") and (tag == python or abi == "abi3" or "py3" in python)


def test_a_pin_of_the_settings_replaces_one_of_the_data_file(tmp_path: Path) -> None:
    ours = BackendReleases(settings(tmp_path)).of("llamacpp", "vulkan")
    assert ours is None or not ours.complete
    reported = BackendReleases(settings(tmp_path, backend_releases=[PIN, PIN.replace("b1", "b2")])).of(
        "llamacpp", "vulkan"
    )
    assert reported == PinnedRelease("b2", archive=Archive("https://github.com/x/y.tar.gz", SUM))
    assert reported.complete


def test_a_mirror(tmp_path: Path) -> None:
    mirrored = BackendReleases(settings(tmp_path, backend_releases=[PIN], release_mirror="http://m.example/gh/"))
    reported = mirrored.of("llamacpp", "vulkan")
    assert reported is not None
    assert reported.archive.url == "http://m.example/gh/x/y.tar.gz"
    elsewhere = PIN.replace("github.com", "gitlab.com")
    reported = BackendReleases(settings(tmp_path, backend_releases=[elsewhere], release_mirror="http://m")).of(
        "llamacpp", "vulkan"
    )
    assert reported is not None
    assert reported.archive.url == "https://gitlab.com/x/y.tar.gz"


@pytest.mark.parametrize(
    "wrong", ["nope:cpu@1", "llamacpp:nope@1", "llamacpp:default@1", "llamacpp:cpu@1", "llamacpp:system@1", "flm:npu@1"]
)
def test_invalid_pins(wrong: str, tmp_path: Path) -> None:
    text = f"{wrong}=https://x.example/y#sha256={SUM}"
    assert len(BackendReleases(settings(tmp_path, backend_releases=[text])).problems) == 1


@pytest.mark.parametrize(
    "text",
    [
        "llamacpp:vulkan=https://x/y#sha256=" + SUM,
        "llamacpp:vulkan@../x=https://x/y#sha256=" + SUM,
        "llamacpp:vulkan@b1=ftp://x/y#sha256=" + SUM,
        "llamacpp:vulkan@b1=https://x/y#sha256=" + SUM[:-1],
        "llamacpp:vulkan@b1=https://x/y",
    ],
)
def test_an_invalid_pin_is_refused_as_a_setting(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"backend_releases": [text]}, Settings)


def test_the_digest_knows_all_that_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PinnedRelease("1", archive=Archive("u", SUM)).digest == PinnedRelease("2", archive=Archive("v", SUM)).digest
    assert (
        PinnedRelease("1", archive=Archive("u", SUM)).digest
        != PinnedRelease("1", archive=Archive("u", SUM[::-1])).digest
    )
    wheels = PinnedRelease("1", [PinnedWheel("a==1", {"a-1-py3-none-any.whl": WheelFile(SUM)})])
    before = wheels.digest
    monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-999")
    assert wheels.digest != before, "another Python needs other wheels"


# states


def test_state_message_action_and_version_are_consistent(tmp_path: Path) -> None:
    for devices in (["cpu"], ["cpu", "amd_gpu"], ["cpu", "nvidia_gpu"], ["cpu", "amd_npu"], []):
        reported = inventory.BackendInventory(settings(tmp_path)).recipes(devices)
        assert set(reported) == set(DESCRIPTORS)
        for recipe, about in reported.items():
            names = [each.name for each in DESCRIPTORS[recipe].backends]
            assert list(about.backends) == [*names, "default"]
            usable = [name for name in names if about.backends[name].state != "unsupported"]
            assert bool(about.default_backend) == bool(usable)
            assert about.default_backend in [UNSET, *usable]
            for name, each in about.backends.items():
                assert each.state in STATES
                assert bool(each.message) == (each.state != "installed"), (recipe, name)
                assert bool(each.devices) == (each.state != "unsupported")
                assert set(each.devices) <= set(devices)
                assert each.state not in ("installable", "update_required") or each.action


def test_the_life_of_an_archive(tmp_path: Path) -> None:
    bare, pinned = settings(tmp_path), settings(tmp_path, backend_releases=[PIN])
    reported = status(bare, "llamacpp", "vulkan")
    assert (reported.state, reported.devices) == ("unsupported", [])
    assert "backend_releases" in reported.message
    assert status(pinned, "llamacpp", "vulkan").state == "installable"
    put(tmp_path, "llamacpp", "vulkan", "b0", "old")
    assert structs.astuple(status(pinned, "llamacpp", "vulkan"))[1:] == (
        "update_required",
        "Backend update is required before use.",
        "lemonbus backends install llamacpp:vulkan",
        "b0",
    )
    assert status(bare, "llamacpp", "vulkan") == BackendStatus(["cpu"], "installed", version="b0")
    current = BackendReleases(pinned).of("llamacpp", "vulkan")
    assert current is not None
    put(tmp_path, "llamacpp", "vulkan", "b1", current.digest)
    assert status(pinned, "llamacpp", "vulkan", "cpu", "amd_gpu") == BackendStatus(
        ["cpu", "amd_gpu"], "installed", version="b1"
    )


def test_the_life_of_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "package_version", lambda _: "")
    reported = status(settings(tmp_path), "oga-npu", "cpu")
    assert (reported.state, reported.action) == ("installable", "lemonbus backends install oga-npu:cpu")
    pin = BackendReleases(Settings()).of("oga-cpu", "cpu")
    assert pin is not None
    put(tmp_path, "oga-cpu", "cpu", pin.version, pin.digest)
    for recipe in ("oga-cpu", "oga-hybrid", "oga-npu", "ryzenai-llm"):
        assert status(settings(tmp_path), recipe, "cpu") == BackendStatus(["cpu"], "installed", version=pin.version)


def test_a_wheel_of_this_python_is_installed(tmp_path: Path) -> None:
    reported = status(settings(tmp_path), "llamacpp", "cpu")
    assert reported == BackendStatus(["cpu"], "installed", version=inventory.package_version("xllamacpp"))
    assert inventory.package_version("surely_not_there") == ""


def test_backends_that_users_install(tmp_path: Path) -> None:
    reported = status(settings(tmp_path), "llamacpp", "system")
    assert (reported.state, reported.message) == ("installable", "llama-server was not found where the settings say.")
    assert reported.action.startswith("https://")
    (tmp_path / "llama-server").write_text("#!/bin/sh\n")
    (tmp_path / "llama-server").chmod(0o755)
    assert status(settings(tmp_path), "llamacpp", "system") == BackendStatus(["cpu"], "installed")
    by_name = msgspec.structs.replace(settings(tmp_path), llama_server="no-such-llama-server")
    assert status(by_name, "llamacpp", "system").message == "no-such-llama-server was not found on PATH."


@pytest.mark.parametrize(
    ("recipe", "name", "expected"),
    [
        ("llamacpp", "metal", "Requires macOS"),
        ("llamacpp", "rocm", "Requires an AMD GPU"),
        ("llamacpp", "cuda", "Requires an NVIDIA GPU"),
        ("whispercpp", "npu", "Requires Windows"),
        ("flm", "npu", "Requires an AMD NPU"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="says what Linux lacks")
def test_what_the_machine_lacks(recipe: str, name: str, expected: str, tmp_path: Path) -> None:
    assert status(settings(tmp_path), recipe, name) == BackendStatus([], "unsupported", expected)


def test_the_preferred_backend(tmp_path: Path) -> None:
    def preferred(recipe: str, *devices: str, **more: Any) -> str:
        reported = inventory.BackendInventory(settings(tmp_path, backend_releases=[PIN], **more)).recipes(
            devices or ("cpu",)
        )
        backends, chosen = reported[recipe].backends, str(reported[recipe].default_backend)
        assert structs.replace(backends["default"], action="") == structs.replace(backends[chosen], action="")
        return chosen

    assert preferred("llamacpp") == "cpu"
    assert preferred("llamacpp", llamacpp_backend="vulkan") == "vulkan"
    assert preferred("llamacpp", llamacpp_backend="rocm") == "cpu"
    assert preferred("whispercpp") == "cpu"
    assert preferred("ryzenai-llm") == "cpu"
    assert BackendInventory(settings(tmp_path)).find("whispercpp", "default", ["cpu"])[1].name == "cpu"
    assert BackendInventory(settings(tmp_path)).find("flm", "default", ["cpu"])[1].name == "npu"
    for recipe, name in (("nope", "cpu"), ("llamacpp", "nope"), ("llamacpp", "")):
        with pytest.raises(LemonbusError):
            BackendInventory(settings(tmp_path)).find(recipe, name, ["cpu"])


def test_a_package_of_another_name_than_its_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oddly_called").mkdir()
    (tmp_path / "oddly_called" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert inventory.package_version("oddly_called") == "unknown"
    (tmp_path / "oddly_called_python-0.4.7.dist-info").mkdir()
    assert inventory.package_version("oddly_called") == "0.4.7"
    assert inventory.package_version("no_such_package") == inventory.package_version("") == ""
