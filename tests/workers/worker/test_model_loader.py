"""The steps of a load, without a process: what is checked, when, and what is reported if a step fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec import structs

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.messages.engines import CheckModel, LoadFailed, ModelChecked, StartEngine
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from tests.support.models.tiny_models import tiny_models
from workers.backends.base import Backend
from workers.worker import model_loader
from workers.worker.load_check import check_model
from workers.worker.model_loader import ModelLoader


def spec_of(name: str, file: Path) -> ModelSpec:
    return ModelSpec(name, f"o/{name}", "llamacpp", "cpu", "llm", str(file))


class LoaderHarness:
    """A loader whose engines do not start: what it sends, and the backends of the engines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, problem: Exception) -> None:
        self.spec = spec_of("x", tiny_models() / "models" / "tiny-chat.gguf")
        self.sent: list[Any] = []
        self.backends: list[Backend] = []
        self.checked: list[str] = []

        def no_engine(_loop: object, _settings: Settings, backend: Backend, *_: object, **__: object) -> None:
            self.backends.append(backend)
            raise problem

        def checked(spec: ModelSpec, backend: Backend) -> Any:
            self.checked.append(spec.name)
            return check_model(spec, backend)

        monkeypatch.setattr(model_loader, "EngineSession", no_engine)
        monkeypatch.setattr(model_loader, "check_model", checked)
        requests: Any = type("Requests", (), dict.fromkeys(("busy", "line_attribution", "report_progress")))
        nothing: Any = None
        self.loader = ModelLoader(nothing, Settings(cache_dir=str(folder)), requests, nothing, self.sent.append)

    def start(
        self, spec: ModelSpec | None = None, context: int = 0, paths: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        order = StartEngine(spec or self.spec, context, paths=dict(paths))

        def step() -> None:
            self.loader.start(order, logs.get_logger(), restore_caches=True)

        self.loader.answer(order.spec, step)

    def failure(self) -> Failure:
        message = self.sent.pop()
        assert isinstance(message, LoadFailed)
        return message.failure


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LoaderHarness:
    return LoaderHarness(monkeypatch, tmp_path, PermissionError(13, "Permission denied", "/x/llama-server"))


def test_an_engine_that_cannot_be_started_is_a_failed_load(harness: LoaderHarness) -> None:
    harness.start()
    failure = harness.failure()
    assert (failure.code, failure.model) == (Code.LOAD_FAILED, "x")
    assert failure.message == "x cannot be loaded: llama-server cannot be started"
    assert "Permission denied" in failure.detail


def test_an_error_of_our_own_is_reported_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    harness = LoaderHarness(monkeypatch, tmp_path, ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        harness.start()
    failure = harness.failure()
    assert (failure.code, failure.message) == (Code.INTERNAL, "x cannot be loaded: an internal error")
    assert "ours" in failure.detail


def test_a_model_is_checked_once_and_its_engine_gets_what_was_found(harness: LoaderHarness) -> None:
    harness.loader.check(CheckModel(harness.spec))
    (report,) = harness.sent
    assert isinstance(report, ModelChecked)
    harness.start(context=512)
    assert harness.checked == ["x"]
    assert harness.backends[-1].model_facts.estimate == report.estimate
    assert harness.backends[-1].spec.options["ctx_size"] == 512


def test_another_model_than_the_one_checked_last_is_checked_before_its_engine_is_started(
    harness: LoaderHarness, tmp_path: Path
) -> None:
    harness.loader.check(CheckModel(harness.spec))
    harness.start(spec_of("y", tmp_path / "missing.gguf"))
    assert harness.failure().message == "y cannot be loaded: its file is missing"
    assert (harness.checked, harness.backends) == (["x", "y"], [])


def test_a_worker_on_another_node_loads_the_files_of_its_node(harness: LoaderHarness, tmp_path: Path) -> None:
    on_head = str(tmp_path / "of-the-head.gguf")
    spec = spec_of("x", Path(on_head))
    paths = {on_head: harness.spec.path}
    harness.loader.check(CheckModel(spec, paths=paths))
    assert isinstance(harness.sent.pop(), ModelChecked)
    harness.start(spec, paths=paths)
    assert harness.backends[-1].spec.path == harness.spec.path
    assert harness.checked == ["x"], "the files that were checked are those of the engine"


def test_one_of_several_engines_uses_only_its_device(harness: LoaderHarness) -> None:
    spec = structs.replace(harness.spec, devices=["0", "1"])
    order = StartEngine(spec, device="1")
    harness.loader.check(CheckModel(spec, device="1"))

    def start() -> None:
        harness.loader.start(order, logs.get_logger(), restore_caches=True)

    harness.loader.answer(spec, start)
    assert harness.checked == ["x"]
    assert harness.backends[-1].spec.devices == ["1"]
