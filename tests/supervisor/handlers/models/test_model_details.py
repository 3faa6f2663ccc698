"""Models in detail: what is reported about one that is loaded, vanishes, or has other names."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.engines import EngineReady
from supervisor.handlers.models.model_details import gpu_layers
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view_values import ModelView
from tests.supervisor.handlers.models.description_harness import LLAMA, DescriptionHarness


def test_an_unknown_model(harness: DescriptionHarness) -> None:
    for name, words in (("Qwen3-0.6B-GGUF", "not downloaded"), ("No-Such", "not found")):
        with pytest.raises(LemonbusError, match=words) as raised:
            harness.ask(1, name)
        assert raised.value.failure.code is Code.MODEL_NOT_FOUND
    assert not harness.orders


def test_a_model_that_vanishes_meanwhile(harness: DescriptionHarness, extra: Path) -> None:
    harness.ask(1, "extra.tiny-chat")
    (extra / "tiny-chat.gguf").unlink()
    harness.described(LLAMA)
    failure = harness.answers[1]
    assert isinstance(failure, Failure)
    assert failure.code is Code.MODEL_NOT_FOUND


def test_a_loaded_model_has_its_engines_figures(harness: DescriptionHarness) -> None:
    facts = EngineReady(slots=4, context=1024, engine_pid=1, backend_url="", seconds=0.5, gpu_layers=99)
    spec = harness.models.spec("extra.tiny-chat", {"ctx_size": 1024})
    harness.loaded["extra.tiny-chat"] = ModelView(
        "extra.tiny-chat",
        "llm",
        ModelState.READY,
        spec,
        worker="w1",
        facts=facts,
        serves=True,
        running=2,
        memory=77,
        ttl=60.0,
    )
    harness.ask(1, "extra.tiny-chat")
    harness.described(LLAMA)
    (details,) = harness.report(1)
    assert (details.context, details.gpu_layers, details.granted, details.memory) == (1024, 17, 2, 77)
    assert (details.state, details.entry.loaded, details.options["ctx_size"]) == ("ready", True, 1024)
    assert details.expires_at == pytest.approx(time.time() + 60, abs=30)


@pytest.mark.parametrize(
    ("options", "used", "layers", "shown"),
    [
        ({}, 0, 16, 0),
        ({}, 99, 16, 17),
        ({}, 99, 0, 99),
        ({"gpu_layers": 35}, 99, 16, 35),
        ({"gpu_layers": 0}, 0, 16, 0),
    ],
)
def test_layers_on_a_gpu(options: dict[str, int | float | str], used: int, layers: int, shown: int) -> None:
    assert gpu_layers(options, used, layers) == shown


def test_copies_are_in_the_report(harness: DescriptionHarness) -> None:
    harness.copy(1, "extra.tiny-chat", "mine:latest")
    assert harness.answers[1] == "extra.tiny-chat"
    harness.models.user_aliases.set_default("mine")
    harness.ask(2, "mine")
    harness.described(LLAMA)
    (details,) = harness.report(2)
    assert (details.entry.given_names, details.is_default) == (["mine"], True)
    for wrong in ("", ":latest", "a\n", " a"):
        with pytest.raises(LemonbusError):
            harness.copy(3, "mine", wrong)
