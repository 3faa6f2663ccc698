"""Lemonade's JSON files: what becomes of registered models, saved options, aliases and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.config.import_plan import ImportPlan
from protocol.failures import LemonbusError
from supervisor.imports import checked_plan, lemonade
from tests.supervisor.imports.plans import left_out
from tests.support.models.tiny_models import tiny_models

BUILT_IN = "Qwen3-0.6B-GGUF"
TINY = {"checkpoint": "owner/tiny-GGUF:Q4_K_M", "recipe": "llamacpp"}


def cached(root: Path, repository: str, **files: str) -> Path:
    """Put a repository into the cache of the hub in a folder of Lemonade; return its snapshot."""
    folder = root / ".cache" / "huggingface" / "hub" / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for name, source in files.items():
        (snapshot / name.replace("__", ".")).symlink_to(tiny_models() / "models" / source)
    return snapshot


def planned(root: Path, *, inside: str = "", **files: dict[str, Any]) -> ImportPlan:
    for name, content in files.items():
        path = root / inside / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    found = lemonade.plan(lemonade.read_folder(root, {}))
    checked_plan.remove_refused(found)
    return found


@pytest.mark.parametrize("key", ["Tiny", "user.Tiny"])
@pytest.mark.parametrize("inside", ["", ".cache/lemonade"])
def test_a_registered_model_is_its_file_in_the_cache(tmp_path: Path, key: str, inside: str) -> None:
    snapshot = cached(
        tmp_path, "owner/tiny-GGUF", tiny_Q4_K_M__gguf="tiny-chat.gguf", mmproj__gguf="tiny-vision/mmproj-tiny.gguf"
    )
    item = {
        **TINY,
        "mmproj": "mmproj.gguf",
        "labels": ["custom", "vision", "reasoning"],
        "suggested": True,
        "size": 1.5,
    }
    options = {"user.Tiny": {"ctx_size": 4096, "llamacpp_backend": "auto", "slots": None, "nonsense": 1}}
    found = planned(tmp_path, inside=inside, user_models={key: item}, recipe_options=options)
    assert found.models == {
        "Tiny": {
            "path": str(snapshot / "tiny_Q4_K_M.gguf"),
            "mmproj": str(snapshot / "mmproj.gguf"),
            "aliases": ["user.Tiny"],
            "options": {"ctx_size": 4096},
        }
    }
    assert list(left_out(found, "Tiny")) == ["labels reasoning", "options.nonsense = 1"]


def test_a_model_of_several_files(tmp_path: Path) -> None:
    main = cached(tmp_path, "o/z", z__gguf="tiny-chat.gguf")
    parts = cached(tmp_path, "o/parts", t_Q8_0__gguf="tiny-chat.gguf", v__gguf="tiny-embed.gguf")
    named = {"main": "o/z:z.gguf", "text_encoder": "o/parts:Q8_0", "vae": "o/parts:v.gguf"}
    item = {"checkpoints": named, "recipe": "sd-cpp", "image_defaults": {"steps": 9}}
    assert planned(tmp_path, user_models={"Z": item}).models["Z"] == {
        "path": str(main / "z.gguf"),
        "parts": {"text_encoder": str(parts / "t_Q8_0.gguf"), "vae": str(parts / "v.gguf")},
        "aliases": ["user.Z"],
        "options": {"steps": 9},
    }
    (parts / "v.gguf").unlink()
    found = planned(tmp_path, user_models={"Z": item})
    assert "its files are not in a cache" in left_out(found, "Z")["the model"]


def test_checkpoints_by_their_kind(tmp_path: Path) -> None:
    snapshot = cached(tmp_path, "ggerganov/whisper.cpp", tiny__bin="tiny-whisper.bin")
    item = {
        "checkpoints": {"main": "ggerganov/whisper.cpp:tiny.bin", "npu_cache": "amd/w:x.rai"},
        "recipe": "whispercpp",
    }
    assert planned(tmp_path, user_models={"W": item}).models["W"]["path"] == str(snapshot / "tiny.bin")


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (TINY, "`lemonbus pull user.X --checkpoint owner/tiny-GGUF:Q4_K_M --recipe llamacpp` downloads it"),
        ({**TINY, "labels": ["embeddings"]}, "--recipe llamacpp --embedding` downloads it"),
        (
            {"recipe": "sd-cpp", "checkpoints": {"main": "a/b:x.safetensors", "vae": "a/b:v.safetensors"}},
            "lemonbus pull user.X --checkpoint a/b:x.safetensors --recipe sd-cpp --part vae=a/b:v.safetensors` downloads it",
        ),
        (
            {"recipe": "llamacpp", "checkpoints": {"main": "a/b:x.gguf", "draft": "a/b:d.gguf"}},
            "it has draft besides; `lemonbus pull user.X --checkpoint a/b:x.gguf --recipe llamacpp`",
        ),
        ({"recipe": "collection.omni", "components": ["A"]}, "there is no recipe collection.omni here"),
        ({"recipe": "command", "checkpoint": "a/b"}, "there is no recipe command here"),
        ({"recipe": "llamacpp", "checkpoint": "../../etc"}, "a checkpoint is owner/repo"),
        ({"recipe": 3}, "Expected `str`, got `int`"),
        (3, "Expected `object`, got `int`"),
    ],
)
def test_other_models_are_left_out_with_what_helps(tmp_path: Path, item: Any, why: str) -> None:
    found = planned(tmp_path, user_models={"X": item})
    assert found.models == {}
    assert why in left_out(found, "X")["the model"]


def test_options_and_aliases_of_the_catalogues_models(tmp_path: Path) -> None:
    options = {f"builtin.{BUILT_IN}": {"ctx_size": 16384}, "user.Gone": {"ctx_size": 1}}
    aliases = {"small": BUILT_IN, "old": f"builtin.{BUILT_IN}", "lost": "user.Gone", "odd": 3}
    found = planned(tmp_path, recipe_options=options, aliases=aliases)
    assert found.models == {BUILT_IN: {"options": {"ctx_size": 16384}, "aliases": ["small", "old"]}}
    assert list(left_out(found)) == ["the alias lost", "the alias odd"]
    assert list(left_out(found, "Gone")) == ["its options"]


def test_only_chosen_settings_are_carried(tmp_path: Path) -> None:
    config = {
        "models": {"x": {}},
        "api_key": "secret",
        "llamacpp_args": "--no-mmap",
        "config_version": 2,
        "port": 8000,
        "host": "0.0.0.0",
        "log_level": "debug",
        "max_loaded_models": -1,
        "ctx_size": 8192,
        "extra_models_dir": "/srv",
        "global_timeout": 900,
        "offline": False,
        "no_broadcast": True,
        "llamacpp": {"backend": "vulkan", "device": "Vulkan0", "cpu_bin": "builtin"},
        "sdcpp": {"backend": "auto", "steps": 20},
        "whispercpp": {"backend": "nonsense"},
        "telemetry": {"enabled": False},
        "cloud_providers": [{"name": "fire", "base_url": "https://f.example/v1"}, 3],
    }
    found = planned(tmp_path, config=config, recipe_options={"extra.mine": {"ctx_size": 9}})
    assert found.settings == {
        "log_level": "debug",
        "max_loaded_models": 10_000,
        "ctx_size": 8192,
        "extra_models_dir": "/srv",
        "load_timeout": 900,
        "llamacpp_backend": "vulkan",
        "llamacpp_args": "--no-mmap",
    }
    assert found.remotes == {"fire": {"url": "https://f.example/v1", "api_key_env": "LEMONADE_FIRE_API_KEY"}}
    assert found.models == {"extra.mine": {"options": {"ctx_size": 9}}}
    named = {"port 8000", "host 0.0.0.0", "no_broadcast", "llamacpp.device", "a cloud provider", "api_key"}
    assert named < left_out(found).keys()
    assert "whispercpp_backend = nonsense" in left_out(found)


def test_a_new_config_changes_nothing(tmp_path: Path) -> None:
    config = {
        "port": 13305,
        "host": "localhost",
        "ctx_size": -1,
        "max_loaded_models": 1,
        "llamacpp": {"prefer_system": False},
    }
    found = planned(tmp_path, config=config)
    assert (found.settings, found.left_out) == ({}, [])


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 3}'])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe_options.json").write_text(text)
    with pytest.raises(LemonbusError, match=r"recipe_options\.json: "):
        lemonade.read_folder(tmp_path, {})


def test_a_folder_without_its_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LemonbusError, match="has none of Lemonade's files"):
        lemonade.read_folder(tmp_path, {})
