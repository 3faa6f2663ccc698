"""Lists of models: they look at the disk once, and wait for headers only for a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.engines import EngineReady
from protocol.messages.model_details import (
    FileFacts,
)
from supervisor.handlers.models.model_lists import HEADER_WAIT_S
from supervisor.models.registry import ModelRegistry
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view_values import ModelView
from tests.supervisor.handlers.models.description_harness import LLAMA, DescriptionHarness, fire
from tests.support.models.tiny_models import tiny_models


def test_a_list_looks_at_the_disk_once_not_for_each_model(
    harness: DescriptionHarness, extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        (extra / f"more-{number}.gguf").symlink_to(tiny_models() / "models" / "tiny-chat.gguf")
    refreshes: list[int] = []
    refresh = ModelRegistry._refresh
    monkeypatch.setattr(
        ModelRegistry, "_refresh", lambda *given, **more: (refreshes.append(1), refresh(*given, **more))[1]
    )
    harness.ask(1)
    harness.described(*[LLAMA] * 12)
    assert len(harness.report(1)) == 12
    assert len(refreshes) < 5


def contexts(harness: DescriptionHarness, number: int) -> list[tuple[int, int]]:
    return [(entry.context_length, entry.max_context_window) for entry in harness.answers[number] if entry.downloaded]


def test_a_list_waits_a_moment_for_headers_and_then_no_more(harness: DescriptionHarness) -> None:
    harness.list_models(1)
    assert 1 not in harness.answers
    harness.described(LLAMA, FileFacts("gguf"))
    assert contexts(harness, 1) == [(4096, 2048), (4096, 0)]
    harness.list_models(2, show_all=True)
    assert contexts(harness, 2) == contexts(harness, 1), "they are known"
    assert all(not entry.context_length for entry in harness.answers[2] if not entry.downloaded)


def test_a_list_is_answered_without_the_header_of_a_slow_disk(harness: DescriptionHarness) -> None:
    harness.list_models(1)
    assert [seconds for seconds, _ in harness.timers if seconds == HEADER_WAIT_S]
    fire(harness, 1.0)
    assert contexts(harness, 1) == [(4096, 0), (4096, 0)]
    harness.described(LLAMA, LLAMA)
    harness.list_models(2)
    assert contexts(harness, 2) == [(4096, 2048)] * 2


def test_one_model_has_the_context_of_its_engine(harness: DescriptionHarness) -> None:
    facts = EngineReady(slots=4, context=1024, engine_pid=1, backend_url="", seconds=0.5)
    harness.loaded["extra.tiny-chat"] = ModelView(
        "extra.tiny-chat", "llm", ModelState.READY, worker="w1", facts=facts, serves=True
    )
    harness.get_model(1, "extra.tiny-chat")
    harness.described(LLAMA)
    entry = harness.answers[1]
    assert (entry.loaded, entry.context_length, entry.max_context_window) == (True, 1024, 2048)


def test_a_context_that_is_not_configured_is_the_trained_one(harness: DescriptionHarness) -> None:
    harness.models.options.save("extra.tiny-chat", {"ctx_size": 0})
    harness.get_model(1, "extra.tiny-chat")
    harness.described(LLAMA)
    assert (harness.answers[1].context_length, harness.answers[1].max_context_window) == (2048, 2048)


def test_a_list_says_where_files_are_if_there_are_several_nodes(harness: DescriptionHarness) -> None:
    harness.list_models(1)
    harness.described(LLAMA, LLAMA)
    here = [entry.id for entry in harness.answers[1] if entry.downloaded]
    assert not any(entry.nodes for entry in harness.answers[1])
    harness.where = {here[0]: ["gpu1", "gpu2"], "deleted": ["gpu1"]}
    harness.list_models(2, show_all=True)
    nodes = {entry.id: entry.nodes for entry in harness.answers[2] if entry.nodes}
    assert nodes == {here[0]: ["head", "gpu1", "gpu2"], here[1]: ["head"]}
