"""Which engines may read each other's prompt caches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

from protocol.config.settings import Settings
from tests.workers.direct_engine import spec_of
from workers.backends.engine_facts import EngineFacts
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.llamacpp.slot_files import (
    CacheFacts,
    FileIdentity,
    cache_key,
    files_in_arguments,
    identify_files,
    relevant_arguments,
)
from workers.backends.slot_files import SlotReport

FACTS = CacheFacts([FileIdentity("/m.gguf", 5, 7)], "cpu b1", 4096, 4, 0, ["-fa", "on"])
ENGINE = EngineFacts(4, 4096, "b1")


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": [FileIdentity("/n.gguf", 5, 7)]},
        {"files": [FileIdentity("/m.gguf", 6, 7)]},
        {"files": [FileIdentity("/m.gguf", 5, 8)]},
        {"files": [FileIdentity("/m.gguf", 5, 7), FileIdentity("/lora.gguf", 1, 1)]},
        {"engine": "cpu b2"},
        {"engine": "vulkan b1"},
        {"context": 8192},
        {"slots": 2},
        {"gpu_layers": 99},
        {"arguments": ["-fa", "off"]},
        {"arguments": ["-fa", "on", "-ctk", "q8_0"]},
        {"arguments": []},
    ],
)
def test_the_key_changes_with_every_fact(change: dict[str, object]) -> None:
    assert cache_key(structs.replace(FACTS, **change)) != cache_key(FACTS)
    assert cache_key(structs.replace(FACTS)) == cache_key(FACTS)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("-t 4 --temp 0.5 -fa on", "-fa on"),
        ("--threads=4 -ctk q8_0", "-ctk q8_0"),
        ("--cache_ram 100 --swa-full", "--swa-full"),
        ("--slot-save-path /srv/slots --rope-scale 2", "--rope-scale 2"),
        ("--something-new 5", "--something-new 5"),
        ("-t", ""),
    ],
)
def test_arguments_without_effect_do_not_count(given: str, kept: str) -> None:
    assert relevant_arguments(given.split()) == kept.split()


def test_files_in_arguments_count_as_they_are_now(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.gguf", "b.gguf", "c.gguf")]
    for name in names:
        Path(name).write_bytes(b"1")
    words = ["--lora", f"{names[0]},{names[1]}", f"--lora-scaled={names[2]}:0.5", "--chat-template", "none/such"]
    assert files_in_arguments(words) == names
    before = identify_files(names)
    os.utime(names[0], ns=(1, 1))
    after = identify_files(names)
    assert before[1:] == after[1:]
    assert (before[0].path, before[0].size) == (after[0].path, after[0].size)
    assert before[0].modified != after[0].modified


def key_of(tmp_path: Path, facts: EngineFacts = ENGINE, **options: int | str) -> str:
    settings = Settings(cache_dir=str(tmp_path), keep_prompt_cache=True)
    files = LlamaCppBackend(spec_of("tiny-chat", **options), settings).slot_files()
    assert files is not None
    return files.key(facts)


def test_the_key_of_a_model_with_its_options(tmp_path: Path) -> None:
    usual = key_of(tmp_path)
    assert usual == key_of(tmp_path, threads=3)
    assert usual == key_of(tmp_path, llamacpp_args="-t 3 --top-k 5")
    others = [
        key_of(tmp_path, ENGINE._replace(version="b2")),
        key_of(tmp_path, ENGINE._replace(version="")),
        key_of(tmp_path, ENGINE._replace(context=1024)),
        key_of(tmp_path, ENGINE._replace(slots=8)),
        key_of(tmp_path, gpu_layers=3),
        key_of(tmp_path, llamacpp_args="-ctk q8_0"),
    ]
    assert len({usual, *others}) == len(others) + 1


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("llm", {"keep_prompt_cache": False}),
        ("llm", {"keep_prompt_cache": True, "prompt_cache_bytes": 0}),
        ("embedding", {"keep_prompt_cache": True}),
        ("reranking", {"keep_prompt_cache": True}),
    ],
)
def test_models_that_keep_none(tmp_path: Path, kind: str, settings: dict[str, object]) -> None:
    chosen = Settings(cache_dir=str(tmp_path), **settings)  # type: ignore[arg-type] - the settings vary
    assert LlamaCppBackend(spec_of("tiny-chat", kind), chosen).slot_files() is None


def test_a_model_with_adapters_keeps_none_because_requests_may_scale_them(tmp_path: Path) -> None:
    for args in ("--lora /srv/a.gguf", "--lora-scaled=/srv/a.gguf:0.5"):
        spec = spec_of("tiny-chat", llamacpp_args=args, keep_prompt_cache=True)
        assert LlamaCppBackend(spec, Settings(cache_dir=str(tmp_path))).slot_files() is None


def test_a_load_decides_before_the_setting(tmp_path: Path) -> None:
    spec = spec_of("tiny-chat", keep_prompt_cache=True)
    assert LlamaCppBackend(spec, Settings(cache_dir=str(tmp_path))).slot_files()


def test_answers_of_the_engine(tmp_path: Path) -> None:
    files = LlamaCppBackend(
        spec_of("tiny-chat", keep_prompt_cache=True), Settings(cache_dir=str(tmp_path))
    ).slot_files()
    assert files is not None
    assert files.report(200, b'{"id_slot":0,"n_saved":5,"n_written":90}') == SlotReport(5, 90)
    assert files.report(200, b'{"id_slot":0,"n_restored":5,"n_read":90}') == SlotReport(5, 90)
    for status, answer in ((200, b"{}"), (200, b"["), (200, b'{"n_saved":5}'), (400, b"{}"), (0, b"it died")):
        with pytest.raises(ValueError, match=r"."):
            files.report(status, answer)
    assert files.save(2, "name").path == "/slots/2?action=save"
    assert files.restore(2, "name").body == b'{"filename":"name"}'
