"""Which model a request means, what it serves, and what remembered names are worth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.failures import Code, LemonbusError
from protocol.messages.caller import Caller
from protocol.messages.work import SubmitRequest
from protocol.models.recipes import ModelSpec
from supervisor.handlers.model_targets import ModelTargets, serves
from supervisor.models.registry import ModelRegistry
from supervisor.scheduler.inputs import ModelTarget
from tests.supervisor.models.model_files import SMOL, MakeModels, write_files

RUNNING = ModelTarget("extra.m", "llm", ModelSpec("extra.m", "c", "llamacpp", "cpu", "llm", "/m.gguf"))


@pytest.mark.parametrize(
    ("name", "endpoint", "served"),
    [
        (SMOL, "chat/completions", True),
        (SMOL, "embeddings", False),
        ("nomic-embed-text-v1-GGUF", "embeddings", True),
        ("nomic-embed-text-v1-GGUF", "chat/completions", False),
        ("bge-reranker-v2-m3-GGUF", "rerank", True),
        (SMOL, "no/such", False),
    ],
)
def test_the_type_decides_which_endpoints_are_served(make: MakeModels, name: str, endpoint: str, served: bool) -> None:
    assert serves(make().resolve(name), endpoint) is served


class Targets:
    """The targets of a registry, over a scheduler in which nothing runs at first."""

    def __init__(self, models: ModelRegistry) -> None:
        self.running: dict[str, ModelTarget] = {}
        view: Any = SimpleNamespace(serving=self.running.get, model=lambda _name: None, used=list)
        self.targets = ModelTargets(models, view)

    def of(self, model: str, endpoint: str = "chat/completions", **fields: Any) -> ModelTarget:
        return self.targets.of_request(SubmitRequest(1, 1, model, endpoint, "r", **fields))


@pytest.fixture
def targets(make: MakeModels, extra: Any) -> Targets:
    write_files(extra, "m.gguf")
    return Targets(make())


def test_the_name_of_a_running_model_is_not_looked_up_again(targets: Targets, monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.of("extra.m")
    assert target.spec is not None
    lookups: list[str] = []
    find = ModelRegistry.find
    monkeypatch.setattr(ModelRegistry, "find", lambda self, name: (lookups.append(name), find(self, name))[1])
    targets.of("extra.m")
    assert lookups == ["extra.m"], "it does not run"
    targets.running["extra.m"] = RUNNING
    assert targets.of("extra.m") == RUNNING
    assert lookups == ["extra.m"]
    targets.targets.forget_model("extra.m")
    assert targets.of("extra.m").spec != RUNNING.spec
    assert lookups == ["extra.m"] * 2


def test_a_key_may_use_a_running_model_only_if_it_lists_it(targets: Targets) -> None:
    targets.of("extra.m")
    targets.running["extra.m"] = RUNNING
    with pytest.raises(LemonbusError, match="may not use model") as raised:
        targets.of("extra.m", caller=Caller("ci", models=["other-*"]))
    assert raised.value.failure.code is Code.FORBIDDEN


def test_a_refused_endpoint_names_the_routes_of_the_model(targets: Targets) -> None:
    with pytest.raises(
        LemonbusError, match=r"does not serve embeddings; it serves /v1/chat/completions, /v1/completions"
    ):
        targets.of("extra.m", "embeddings")


def test_a_request_that_may_not_download_is_refused(targets: Targets) -> None:
    assert targets.of("Qwen3-0.6B-GGUF").spec is None
    with pytest.raises(LemonbusError, match="is not on this machine, and no") as raised:
        targets.of("Qwen3-0.6B-GGUF", download_refusal="no")
    assert raised.value.failure.code is Code.FORBIDDEN
