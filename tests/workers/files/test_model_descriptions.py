"""What files of models say of themselves: GGUF headers, folders of ONNX Runtime GenAI, and files that say nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.messages.model_details import FileFacts
from tests.support.models.tiny_models import tiny_models
from workers.files.description import describe
from workers.jobs.describe import read_facts


def test_a_gguf_header_is_shown_without_its_lists() -> None:
    facts = describe(str(tiny_models() / "models" / "tiny-chat.gguf"))
    assert (facts.format, facts.architecture) == ("gguf", "llama")
    assert facts.quantization == "F32"
    assert facts.parameters > 1000
    assert facts.vocabulary > 100
    assert facts.layers > 0
    assert facts.context_length == facts.metadata["llama.context_length"]
    assert "{{" in facts.template or "{%" in facts.template
    assert len(facts.digest) == 64
    assert facts.metadata["general.architecture"] == "llama"
    assert not [key for key in facts.metadata if key.startswith(("tokenizer.ggml.tokens", "tokenizer.chat_template"))]
    assert all(isinstance(value, int | float | str | bool) for value in facts.metadata.values())


def test_the_digest_is_the_sha256_that_the_hubs_cache_knows(tmp_path: Path) -> None:
    blob = tmp_path / ("ab" * 32)
    blob.write_bytes((tiny_models() / "models" / "tiny-chat.gguf").read_bytes())
    (tmp_path / "model.gguf").symlink_to(blob)
    assert describe(str(tmp_path / "model.gguf")).digest == "ab" * 32


@pytest.mark.parametrize("separate", [True, False])
def test_a_folder_of_genai(tmp_path: Path, separate: bool) -> None:
    model = {"type": "qwen2", "context_length": 2048, "vocab_size": 151936, "decoder": {"num_hidden_layers": 24}}
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": model}))
    if separate:
        (tmp_path / "chat_template.jinja").write_text("{{ tools }}")
    else:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ tools }}"}))
    facts = describe(str(tmp_path))
    assert (facts.format, facts.architecture, facts.context_length) == ("onnx", "qwen2", 2048)
    assert (facts.vocabulary, facts.layers, facts.template) == (151936, 24, "{{ tools }}")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 32, b"no"])
def test_a_broken_file_has_empty_facts(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    paths = [str(tmp_path / "a.gguf"), str(tmp_path / "absent.gguf"), "tag:of-a-program"]
    assert [read_facts(path) for path in paths] == [FileFacts()] * 3
