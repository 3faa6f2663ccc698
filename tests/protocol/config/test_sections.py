"""The sections of the configuration file: their meaning, and which of two wins."""

from __future__ import annotations

import msgspec
import pytest

from protocol.config.model_settings import (
    GroupSettings,
    ModelSettings,
    RecipeDefaults,
    RemoteSettings,
    merge_model_settings,
)
from protocol.config.settings import Settings
from tests.protocol.config.resolved_settings import PATH, resolved

TEXT = """
port = 1
[models."Qwen3-0.6B-GGUF"]
aliases = ["small", "gpt-4o-mini"]
options.ctx_size = 8192
args = "--no-mmap"
env = { CUDA_LAUNCH_BLOCKING = "1" }
devices = ["0", "GPU-1234"]
ttl = 300
pin = false
preload = true
concurrency = 2
queue = 8
replicas = 2
drop = ["top_k"]
system_prompt = '''
Be brief.
'''
[models."Qwen3-0.6B-GGUF".set]
temperature = 0.2
chat_template_kwargs = { enable_thinking = false }

[defaults.llamacpp]
ttl = 0.5

[groups.large]
models = ["A", "B"]
exclusive = true
max_loaded = 2
"""
QWEN = 'models."Qwen3-0.6B-GGUF"'


def test_each_setting_is_read_with_its_line() -> None:
    found = resolved(text=TEXT)
    assert found.settings.models == {
        "Qwen3-0.6B-GGUF": ModelSettings(
            aliases=["small", "gpt-4o-mini"],
            options={"ctx_size": 8192},
            args="--no-mmap",
            env={"CUDA_LAUNCH_BLOCKING": "1"},
            devices=["0", "GPU-1234"],
            ttl=300.0,
            pin=False,
            preload=True,
            concurrency=2,
            queue=8,
            replicas=2,
            drop=["top_k"],
            system_prompt="Be brief.\n",
            set={"temperature": 0.2, "chat_template_kwargs": {"enable_thinking": False}},
        )
    }
    assert found.settings.defaults == {"llamacpp": RecipeDefaults(ttl=0.5)}
    assert found.settings.groups == {"large": GroupSettings(models=["A", "B"], exclusive=True, max_loaded=2)}
    lines = {name: origin.name for name, origin in found.origins.items() if origin.kind == "file"}
    assert lines[f"{QWEN}.aliases"] == f"{PATH}:4"
    assert lines[f"{QWEN}.options.ctx_size"] == f"{PATH}:5"
    assert lines[f"{QWEN}.env.CUDA_LAUNCH_BLOCKING"] == f"{PATH}:7"
    assert lines[f"{QWEN}.system_prompt"] == f"{PATH}:16"
    assert lines[f"{QWEN}.set.chat_template_kwargs"] == f"{PATH}:21"
    assert lines["defaults.llamacpp.ttl"] == f"{PATH}:24"
    assert lines["groups.large.max_loaded"] == f"{PATH}:29"


def test_what_is_read_reaches_child_processes_and_can_be_compared() -> None:
    settings = resolved(text=TEXT).settings
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings
    assert settings == resolved(text=TEXT.replace("port = 1", "port=1 # the same")).settings
    assert settings != resolved(text=TEXT.replace("ttl = 0.5", "ttl = 0.6")).settings


DEFAULTS = RecipeDefaults(
    options={"ctx_size": 1, "slots": 1},
    args="--a",
    env={"A": "1", "B": "1"},
    devices=["0"],
    ttl=5.0,
    pin=True,
    concurrency=1,
    queue=1,
    memory_limit=1,
    cpus=1.0,
    nice=1,
    user="a",
    set={"temperature": 1, "top_p": 1},
    drop=["top_k"],
    system_prompt="default",
)


@pytest.mark.parametrize(
    ("model", "merged"),
    [
        ({}, {}),
        ({"options": {"slots": 2}}, {"options": {"ctx_size": 1, "slots": 2}}),
        ({"args": ""}, {"args": ""}),
        ({"env": {"B": "2"}}, {"env": {"A": "1", "B": "2"}}),
        ({"devices": []}, {"devices": []}),
        ({"ttl": 0.0}, {"ttl": 0.0}),
        ({"pin": False}, {"pin": False}),
        ({"concurrency": 3, "queue": 4}, {"concurrency": 3, "queue": 4}),
        ({"memory_limit": 0, "cpus": 0.5, "nice": 0}, {"memory_limit": 0, "cpus": 0.5, "nice": 0}),
        ({"user": "b"}, {"user": "b"}),
        ({"set": {"top_p": 2, "seed": 3}}, {"set": {"temperature": 1, "top_p": 2, "seed": 3}}),
        ({"request_defaults": {"min_p": 1}}, {"request_defaults": {"min_p": 1}}),
        ({"drop": ["seed", "top_k"]}, {"drop": ["top_k", "seed"]}),
        ({"system_prompt": ""}, {"system_prompt": ""}),
        ({"aliases": ["a"], "preload": True}, {"aliases": ["a"], "preload": True}),
    ],
)
def test_a_model_wins_over_its_recipe(model: dict[str, object], merged: dict[str, object]) -> None:
    own = msgspec.convert(model, ModelSettings)
    expected = msgspec.convert({**msgspec.to_builtins(DEFAULTS), **merged}, ModelSettings)
    assert merge_model_settings(DEFAULTS, own) == expected
    assert merge_model_settings(RecipeDefaults(), own) == own


def test_a_section_of_a_remote_model_wins_over_that_of_its_server() -> None:
    remote = RemoteSettings(url="http://a/v1", api_key_env="A", slots=4, timeout=5)
    assert remote.section_of("x", ModelSettings()) == ModelSettings(
        url="http://a/v1", served_name="x", api_key_env="A", slots=4, timeout=5
    )
    own = ModelSettings(api_key_file="/k", slots=2, timeout=1, ttl=3)
    assert remote.section_of("x", own) == msgspec.structs.replace(own, url="http://a/v1", served_name="x")
    read = resolved(
        text="[remotes.gpu]\nurl = 'http://a/v1'\n[models.'gpu/x']\nslots = 2\ntimeout = 1\nhealth = '/h'"
    ).settings.models["gpu/x"]
    assert read == ModelSettings(slots=2, timeout=1, health="/h")
