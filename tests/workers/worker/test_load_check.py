"""What is checked before an engine is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.models.recipes import ModelSpec
from tests.support.models.tiny_models import tiny_models
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.files import gguf
from workers.worker.load_check import available_memory, check_model


def test_available_memory() -> None:
    assert available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2 * 1024 * 1024
    assert available_memory("") == 0


def test_every_part_of_a_split_model_is_read(tmp_path: Path) -> None:
    whole = (tiny_models() / "models" / "tiny-chat.gguf").read_bytes()
    first, second = (tmp_path / f"x-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(whole)
    second.write_bytes(whole)
    backend = LlamaCppBackend(ModelSpec("x", "o/x", "llamacpp", "cpu", "llm", str(first)), Settings())
    parameters = gguf.read(first).parameters
    assert parameters
    assert check_model(backend.spec, backend)[1].parameters == 2 * parameters
    second.write_bytes(whole[:-64])
    with pytest.raises(LemonbusError, match="truncated"):
        check_model(backend.spec, backend)
