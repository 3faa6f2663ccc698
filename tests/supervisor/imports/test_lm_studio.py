"""LM Studio's folder: what becomes of its models and of what is set for single ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.config.import_plan import ImportPlan
from protocol.failures import LemonbusError
from supervisor.imports import checked_plan, lm_studio
from tests.supervisor.imports.plans import left_out
from tests.support.models.tiny_models import tiny_models

TINY = "lmstudio-community/Tiny-1B-GGUF/Tiny-Q4_K_M.gguf"


def put(folder: Path, file: str, source: str = "tiny-chat.gguf") -> Path:
    path = folder / "models" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(tiny_models() / "models" / source)
    return path


def planned(folder: Path) -> ImportPlan:
    found = lm_studio.plan(folder, lm_studio.read_models(folder))
    checked_plan.remove_refused(found)
    return found


def set_defaults(folder: Path, file: str, text: str) -> None:
    path = folder / ".internal" / "user-concrete-model-default-config" / f"{file}.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def fields(**values: Any) -> dict[str, Any]:
    return {"fields": [{"key": key.replace("__", "."), "value": value} for key, value in values.items()]}


def test_models_have_the_names_of_its_api(tmp_path: Path) -> None:
    tiny = put(tmp_path, TINY)
    projector = put(tmp_path, "lmstudio-community/Tiny-1B-GGUF/mmproj-Tiny.gguf", "tiny-vision/mmproj-tiny.gguf")
    files = [put(tmp_path, f"bartowski/Multi-GGUF/Multi-{kind}.gguf") for kind in ("Q4_0", "Q8_0")]
    other = put(tmp_path, "other/tiny-1b/tiny.gguf")
    assert planned(tmp_path).models == {
        "multi-q4_0": {"path": str(files[0])},
        "multi-q8_0": {"path": str(files[1])},
        "tiny-q4_k_m": {"path": str(tiny), "mmproj": str(projector)},
        "tiny": {"path": str(other)},
    }
    other.unlink()
    found = planned(tmp_path / "models").models
    assert found["tiny-1b"]["aliases"] == ["lmstudio-community/Tiny-1B-GGUF"]


def test_what_is_set_for_a_model(tmp_path: Path) -> None:
    put(tmp_path, TINY)
    load = fields(
        llm__load__contextLength=4096,
        llm__load__numParallelSessions=2,
        llm__load__llama__acceleration__offloadRatio=1,
        llm__load__llama__flashAttention=True,
    )
    operation = fields(
        llm__prediction__temperature=0.3,
        llm__prediction__topPSampling={"checked": True, "value": 0.9},
        llm__prediction__repeatPenalty={"checked": False, "value": 1.1},
        llm__prediction__topKSampling="many",
        llm__prediction__systemPrompt="Be brief.",
    )
    set_defaults(tmp_path, TINY, json.dumps({"preset": "", "load": load, "operation": operation}))
    found = planned(tmp_path)
    section = found.models["tiny-1b"]
    assert section["options"] == {"ctx_size": 4096, "slots": 2}
    assert section["request_defaults"] == {"temperature": 0.3, "top_p": 0.9}
    assert section["system_prompt"] == "Be brief."
    assert list(left_out(found, "tiny-1b")) == ["llm.load.llama.flashAttention", "request_defaults.top_k = many"]


@pytest.mark.parametrize(("ratio", "options"), [(0, {"gpu_layers": 0}), ("off", {"gpu_layers": 0}), ("max", None)])
def test_offloading(tmp_path: Path, ratio: Any, options: dict[str, int] | None) -> None:
    put(tmp_path, TINY)
    load = fields(llm__load__llama__acceleration__offloadRatio=ratio)
    set_defaults(tmp_path, TINY, json.dumps({"load": load}))
    found = planned(tmp_path)
    assert found.models["tiny-1b"].get("options") == options
    assert found.left_out == []


def test_broken_settings_of_a_model_are_named(tmp_path: Path) -> None:
    put(tmp_path, TINY)
    set_defaults(tmp_path, TINY, "{")
    assert list(left_out(planned(tmp_path), "tiny-1b")) == ["the file Tiny-Q4_K_M.gguf.json, which is broken"]


def test_what_no_engine_runs_is_left_out(tmp_path: Path) -> None:
    for file in ("mlx-community/M-4bit/model.safetensors", "x/broken/b.gguf"):
        (tmp_path / "models" / file).parent.mkdir(parents=True)
        (tmp_path / "models" / file).write_bytes(b"hello")
    found = planned(tmp_path)
    assert found.models == {}
    assert "safetensors" in left_out(found, "mlx-community/M-4bit")["the model"]
    assert "is not a GGUF file" in left_out(found, "x/broken")["the model"]


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(LemonbusError, match=r"LM Studio's models|has no models"):
            lm_studio.read_models(folder)
