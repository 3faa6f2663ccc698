"""llama-swap's configuration: what becomes of its commands, groups, peers and other keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.config.import_plan import ImportPlan
from protocol.failures import LemonbusError
from supervisor.imports import checked_plan, llama_swap
from tests.supervisor.imports.plans import left_out

SERVER = "llama-server --port ${PORT} -m /m/a.gguf"


@pytest.fixture(autouse=True)
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def planned(text: str, folder: Path, **environment: str) -> ImportPlan:
    file = folder / "config.yaml"
    file.write_text(text)
    found = llama_swap.plan(file, llama_swap.read(file), environment)
    checked_plan.remove_refused(found)
    return found


def section(cmd: str, folder: Path, **more: Any) -> dict[str, Any]:
    lines = [f"    {key}: {value}\n" for key, value in more.items()]
    return planned(f"models:\n  x:\n    cmd: {cmd!r}\n{''.join(lines)}", folder).models["x"]


def program(folder: Path, name: str) -> Path:
    path = folder / "bin" / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_llama_server_with_a_file_is_a_section_with_path(tmp_path: Path) -> None:
    cmd = f"{SERVER} -c 8192 -np 2 -ngl 99 -t 3 --mmproj b.gguf --no-mmap --temp 0.5 --host 0.0.0.0 --jinja"
    assert section(cmd, tmp_path) == {
        "path": "/m/a.gguf",
        "mmproj": str(tmp_path / "b.gguf"),
        "options": {"ctx_size": 4096, "slots": 2, "gpu_layers": 99, "threads": 3},
        "args": "--no-mmap --temp 0.5",
    }


def test_a_model_file_that_is_missing_or_no_model_is_named(tmp_path: Path) -> None:
    """The section is kept: the file may come later."""
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "good.gguf").write_bytes(b"GGUF" + bytes(28))
    cmds = {name: f"llama-server --port ${{PORT}} -m {name}.gguf" for name in ("gone", "text", "good")}
    cmds["good"] += " --mmproj nowhere.gguf"
    found = planned("models:\n" + "".join(f"  {name}: {{cmd: '{cmd}'}}\n" for name, cmd in cmds.items()), tmp_path)
    assert found.models["gone"]["path"] == str(tmp_path / "gone.gguf")
    end = "; the section is written, but loads fail until the file is right"
    missing = f"its file cannot be read (No such file or directory): {tmp_path}"
    assert left_out(found, "gone")["-m gone.gguf"] == f"{missing}/gone.gguf{end}"
    assert left_out(found, "text")["-m text.gguf"] == f"its file is not a GGUF file: {tmp_path}/text.gguf{end}"
    assert {what: why for what, why in left_out(found, "good").items() if what.startswith("-")} == {
        "--mmproj nowhere.gguf": f"{missing}/nowhere.gguf{end}"
    }


def test_a_context_without_slots_is_that_of_one_slot(tmp_path: Path) -> None:
    assert section(f"{SERVER} --ctx-size 8192", tmp_path)["options"] == {"ctx_size": 8192, "slots": 1}


def test_the_same_llama_server_runs_the_models(tmp_path: Path) -> None:
    """The program that most have is the setting. A model with another one keeps its command."""
    first, other = program(tmp_path, "llama-server-b1"), program(tmp_path, "llama-server-b2")
    text = "models:\n" + "".join(
        f"  {name}: {{cmd: '{path} --port ${{PORT}} -m /m/a.gguf --made-up 3'}}\n"
        for name, path in (("a", first), ("b", "bin/llama-server-b1"), ("c", other))
    )
    found = planned(text, tmp_path)
    assert found.settings == {"llama_server": str(first)}
    assert found.models["a"] == {
        "path": "/m/a.gguf",
        "options": {"llamacpp_backend": "system"},
        "args": "--made-up 3",
    }
    assert found.models["b"] == found.models["a"]
    assert found.models["c"]["command"] == [str(other), "--port", "{port}", "-m", "/m/a.gguf", "--made-up", "3"]


def test_without_the_program_flags_of_other_builds_are_left_out(tmp_path: Path) -> None:
    found = planned(f"models: {{x: {{cmd: '{SERVER} --made-up 3 --api-key s --no-mmap'}}}}", tmp_path)
    assert found.models["x"] == {"path": "/m/a.gguf", "args": "--no-mmap"}
    notes = left_out(found, "x")
    assert notes["--made-up 3"] == "unknown argument --made-up"
    assert notes["--api-key s"] == "lemonbus decides this itself"
    assert "is not on this machine" in notes["its llama-server"]


@pytest.mark.parametrize(
    ("cmd", "more", "command", "rest"),
    [
        ("vllm serve x --port ${PORT}", {}, ["vllm", "serve", "x", "--port", "{port}"], {}),
        (
            "docker run -p 8999:80 i --name ${MODEL_ID}",
            {"proxy": "http://127.0.0.1:8999", "checkEndpoint": "/ready", "useModelName": "y", "concurrencyLimit": 3},
            ["docker", "run", "-p", "{port}:80", "i", "--name", "x"],
            {"health": "/ready", "served_name": "y", "slots": 3},
        ),
        ("tool --port=8000", {"proxy": "http://localhost:8000/"}, ["tool", "--port={port}"], {}),
        ("llama-server -hf a/b --port ${PORT} --reranking", {}, None, {"type": "reranking"}),
        ("whisper-server -m a.bin --port ${PORT}", {}, None, {"type": "audio"}),
        ("# note\nvllm serve \\\n  x --port ${PORT}", {}, ["vllm", "serve", "x", "--port", "{port}"], {}),
    ],
)
def test_any_other_command_is_a_program_of_the_operators_own(
    tmp_path: Path, cmd: str, more: dict[str, Any], command: list[str] | None, rest: dict[str, Any]
) -> None:
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - only here

    found = planned(yaml.safe_dump({"models": {"x": {"cmd": cmd, **more}}}), tmp_path).models["x"]
    assert found.pop("command") == (command or cmd.replace("${PORT}", "{port}").split())
    assert found == {"slots": 10, **rest}


def test_macros(tmp_path: Path) -> None:
    text = """
macros: {dir: "${env.DIR}", ctx: 4096, args: "--ctx-size ${ctx} --parallel 1", temp: 0.5}
models:
  a: {cmd: "llama-server -m ${dir}/${MODEL_ID}.gguf ${args}", filters: {setParams: {temperature: "${temp}"}}}
  b: {macros: {ctx: 512}, cmd: "llama-server -m /x ${args}"}
  c: {cmd: "${nothing}"}
  d: {cmd: "${env.NOTHING}"}
  e: {macros: {loop: "${loop}"}, cmd: "${loop}"}
"""
    found = planned(text, tmp_path, DIR="/m")
    assert found.models["a"]["path"] == "/m/a.gguf"
    assert found.models["a"]["set"] == {"temperature": 0.5}
    assert [found.models[name]["options"]["ctx_size"] for name in "ab"] == [4096, 512]
    assert "${env.DIR}" in left_out(found, "a")
    assert [left_out(found, name)["the model"] for name in "cde"] == [
        "the macro nothing is not defined",
        "the variable NOTHING is not set here",
        "the macro loop has no end",
    ]


def test_what_all_models_may_have(tmp_path: Path) -> None:
    text = """
globalTTL: 60
models:
  a:
    cmd: "%s"
    aliases: [small, {id: mini, unlisted: true}]
    env: ["A=b=c", "LD_PRELOAD=x"]
    concurrencyLimit: 2
    filters: {stripParams: "top_k, model, seed", setParams: {seed: 1, model: x}, setParamsByID: {a: {}}}
    name: A
    new_key: 1
  b: {cmd: "%s", ttl: 0}
hooks: {on_startup: {preload: [b, c]}}
"""
    found = planned(text % (SERVER, SERVER), tmp_path)
    assert {key: value for key, value in found.models["a"].items() if key != "path"} == {
        "aliases": ["small", "mini"],
        "env": {"A": "b=c"},
        "ttl": 60.0,
        "concurrency": 2,
        "set": {"seed": 1},
        "drop": ["top_k"],
    }
    assert found.models["b"] == {"path": "/m/a.gguf", "ttl": 0.0, "preload": True}
    named = {"name", "new_key", "filters.setParamsByID", "env.LD_PRELOAD", "429 beyond concurrencyLimit"}
    assert named <= left_out(found, "a").keys()


def test_groups_peers_and_the_server(tmp_path: Path) -> None:
    models = "".join(f"  {name}: {{cmd: '{SERVER}'}}\n" for name in "abcdef")
    text = f"""
healthCheckTimeout: 300
logLevel: warn
matrix: {{}}
models:
{models}
groups:
  always: {{swap: false, exclusive: false, persistent: true, members: [a]}}
  one: {{members: [b, c, nothing]}}
  together: {{swap: false, members: [d]}}
peers:
  cloud: {{proxy: "https://api.example.org", apiKey: "${{env.KEY}}", models: [large]}}
  open: {{proxy: "http://h:1/", apiKey: secret, models: [small]}}
"""
    found = planned(text, tmp_path)
    assert found.groups == {
        "one": {"models": ["b", "c"], "swap": True, "exclusive": True},
        "together": {"models": ["d"], "exclusive": True},
    }
    assert [name for name, section in found.models.items() if section.get("pin")] == ["a"]
    assert found.settings == {"log_level": "warning"}
    assert found.models["large"] == {"url": "https://api.example.org/v1", "served_name": "large", "api_key_env": "KEY"}
    assert found.models["small"] == {"url": "http://h:1/v1", "served_name": "small"}
    assert {"matrix", "the group of e, f", "peers.open.apiKey"} <= left_out(found).keys()
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "it is not YAML"),
        ("- a", "expected models"),
        ("macros: {}", "missing required field `models`"),
        ("models: {a: 3}", "Expected `object`, got `int`"),
        ("models: {}\ngroups: {g: {}}", "missing required field `members`"),
        ("models: !!python/object/apply:os.system ['x']", "it is not YAML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(LemonbusError, match=r"config\.yaml: ") as caught:
        planned(text, tmp_path)
    assert why in str(caught.value)


@pytest.mark.parametrize("cmd", ["llama-server 'x", "vllm serve x --port 8000"])
def test_a_command_that_cannot_be_used_is_left_out(tmp_path: Path, cmd: str) -> None:
    found = planned(f"models:\n  x:\n    cmd: {cmd}\n  y: {{cmd: '{SERVER}'}}", tmp_path)
    assert list(found.models) == ["y"]
    assert list(left_out(found, "x")) == ["the model"]
