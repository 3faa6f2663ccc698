"""A load whose backend is not installed is refused with what helps on this machine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.models.recipes import ModelSpec
from supervisor.backends.inventory import BackendInventory, explain_missing_backend

MISSING = Failure(Code.BACKEND_NOT_INSTALLED, "it is not installed", model="m")


def explained(cache: Path, recipe: str, backend: str, devices: Collection[str], failure: Failure = MISSING) -> Failure:
    spec = ModelSpec("m", "a/b", recipe, backend, "llm", "/m")
    return explain_missing_backend(failure, spec, BackendInventory(Settings(cache_dir=str(cache))), devices)


def test_a_backend_that_the_machine_cannot_run_is_unsupported(tmp_path: Path) -> None:
    failure = explained(tmp_path, "flm", "npu", ["cpu"])
    assert (failure.code, failure.http_status, failure.final) == (Code.UNSUPPORTED, 501, True)
    assert failure.message.startswith(
        "m cannot be loaded: its backend flm:npu cannot be used on this machine: Requires"
    )
    assert "lemonbus backends install" not in failure.message


@pytest.mark.parametrize("backend", ["vulkan", "cpu"])
def test_an_installable_backend_is_named_with_its_command(tmp_path: Path, backend: str) -> None:
    devices = ["cpu", "amd_gpu"]
    status = BackendInventory(Settings(cache_dir=str(tmp_path)))
    failure = explained(tmp_path, "llamacpp", backend, devices)
    state = status.recipes(devices)["llamacpp"].backends[backend]
    if state.state == "installable":
        assert (failure.code, failure.http_status) == (Code.BACKEND_NOT_INSTALLED, 409)
        assert f"`lemonbus backends install llamacpp:{backend}`" in failure.message
    elif state.state == "unsupported":
        assert (failure.code, failure.http_status) == (Code.UNSUPPORTED, 501)
        assert state.message.rstrip(".") in failure.message
        assert failure.param == "llamacpp_backend"
    else:
        assert failure == MISSING, "a part of it is missing, which the worker named"


def test_an_installed_backend_of_the_recipe_is_an_alternative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    failure = explained(tmp_path, "llamacpp", "rocm", ["cpu"])
    assert failure.code is Code.UNSUPPORTED
    assert "system" in failure.message
    assert failure.message.endswith("load the model with `llamacpp_backend`")


def test_a_program_that_its_owner_installs_is_named_with_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    failure = explained(tmp_path, "flm", "npu", ["cpu", "amd_npu"])
    assert (failure.code, failure.http_status) == (Code.BACKEND_NOT_INSTALLED, 409)
    assert "flm was not found on PATH" in failure.message
    assert "See https://" in failure.message


def test_other_failures_are_left_alone(tmp_path: Path) -> None:
    other = Failure(Code.LOAD_FAILED, "its file is empty", model="m")
    assert explained(tmp_path, "flm", "npu", ["cpu"], other) == other
