"""Programs of llama.cpp that were installed: from a release, by the system, or as wheels."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from protocol.failures import Code, LemonbusError
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from tests.workers.backends.llamacpp.requested_backend import made


def put(tmp_path: Path, backend: str, program: str = "") -> Path:
    folder = installations.backend_folder(str(tmp_path), "llamacpp", backend) / "b1-d1"
    (folder / installations.FILES_FOLDER).mkdir(parents=True)
    (folder / installations.RECORD_FILE).write_bytes(
        msgspec.json.encode(InstallationRecord("llamacpp", backend, "b1", "d1", program))
    )
    return folder


def test_what_was_installed_from_a_release(tmp_path: Path) -> None:
    backend = made(backend="vulkan", home=str(tmp_path))
    with pytest.raises(LemonbusError, match="lemonbus backends install llamacpp:vulkan") as raised:
        backend.check()
    assert raised.value.failure.code is Code.BACKEND_NOT_INSTALLED
    program = put(tmp_path, "vulkan", "bin/llama-server") / installations.FILES_FOLDER / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    backend.check()
    words = backend.command(1)
    assert words[0] == str(program)
    assert words[words.index("-ngl") + 1] == "99"
    assert "-b" not in words
    kept = backend.environment({"PYTHONPATH": "p", "LD_LIBRARY_PATH": "/lib"})
    assert kept == {
        "LD_LIBRARY_PATH": f"{program.parent}:/lib",
        "GOMP_SPINCOUNT": "300",
        "LLAMA_API_KEY": backend.key,
        "PATH": "/dev/null",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


@pytest.mark.parametrize(
    ("options", "words"), [({"gpu_layers": 0}, ["-ngl", "0"]), ({"gpu_layers": 9}, ["-ngl", "9"]), ({}, [])]
)
def test_a_program_with_a_gpu_uses_it_unless_a_load_asks_for_fewer_layers(
    options: dict[str, int], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama-server").write_text("#!/bin/sh\n")
    (tmp_path / "llama-server").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = made(backend="system", **options).command(1)
    assert [word for flag, word in itertools.pairwise(command) if "-ngl" in (flag, word)] == words


def test_wheels_in_a_folder_of_their_own(tmp_path: Path) -> None:
    folder = put(tmp_path, "cpu")
    backend = made(home=str(tmp_path))
    backend.check()
    assert backend.environment({})["PYTHONPATH"] == str(folder / installations.SITE_FOLDER)
    assert backend.environment({"PYTHONPATH": "p"})["PYTHONPATH"] == f"p:{folder / installations.SITE_FOLDER}"
