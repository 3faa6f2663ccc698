"""What is checked before an engine is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models.engine_limits import EngineLimits
from protocol.models.recipes import ModelSpec
from tests.support.models.tiny_models import tiny_models
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.files import gguf
from workers.worker.load_check import check_model


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


@pytest.mark.parametrize(("limit", "of_all"), [(None, 1000), (1000, 0)], ids=["of all models", "of this one"])
def test_a_model_whose_weights_exceed_its_limit_is_refused(limit: int | None, of_all: int) -> None:
    file = tiny_models() / "models" / "tiny-chat.gguf"
    spec = ModelSpec("x", "o/x", "llamacpp", "cpu", "llm", str(file), limits=EngineLimits(memory=limit))
    backend = LlamaCppBackend(spec, Settings(memory_limit=of_all))
    with pytest.raises(LemonbusError, match="and memory_limit allows") as refused:
        check_model(spec, backend)
    assert refused.value.failure.code is Code.INSUFFICIENT_MEMORY


def test_the_limit_of_a_model_counts_instead_of_that_of_all() -> None:
    file = tiny_models() / "models" / "tiny-chat.gguf"
    spec = ModelSpec("x", "o/x", "llamacpp", "cpu", "llm", str(file), limits=EngineLimits(memory=0))
    backend = LlamaCppBackend(spec, Settings(memory_limit=1000))
    assert check_model(spec, backend)[0].estimate.parts["weights"] > 1000
