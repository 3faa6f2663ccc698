"""``lemonbus import``: what happens to the file, and what is said. The plans are those of a real store of Ollama."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import imports
from gateway.cli.exit_codes import CommandError
from gateway.cli.imports import edited
from protocol.config.import_plan import ImportPlan, LeftOut
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply
from tests.support.models.tiny_models import tiny_models
from tests.support.ollama_store import OllamaStore

A: dict[str, Any] = {"path": "/a", "aliases": ["small"]}
PLAN = ImportPlan("/store", models={"a": A, "b:1": {"path": "/b"}}, settings={"slots": 3}, comments={"a": "of\nOllama"})
BOTH = """slots = 3

# ofOllama
[models.a]
path = "/a"
aliases = ["small"]

[models."b:1"]
path = "/b"
"""


@pytest.mark.parametrize(
    ("text", "replace", "expected", "changes"),
    [
        ("", False, BOTH, ["added", "added", "added"]),
        (BOTH, False, BOTH, ["unchanged", "unchanged", "unchanged"]),
        (BOTH + "ttl = 3\n", True, BOTH + "ttl = 3\n", ["unchanged", "unchanged", "unchanged"]),
        (BOTH.replace('"/b"', '"/c"'), False, BOTH.replace('"/b"', '"/c"'), ["unchanged", "unchanged", "kept"]),
        (BOTH.replace('"/b"', '"/c"'), True, BOTH, ["unchanged", "unchanged", "replaced"]),
        (
            BOTH.replace("slots = 3", "slots = 4 # ours"),
            False,
            BOTH.replace("slots = 3", "slots = 4 # ours"),
            ["kept", "unchanged", "unchanged"],
        ),
    ],
)
def test_what_the_file_says_already_stays(text: str, replace: bool, expected: str, changes: list[str]) -> None:
    found = edited(text, PLAN, replace=replace)
    assert found.text == expected
    assert [step.change for step in found.steps] == changes
    assert found.left_out == []


@pytest.mark.parametrize(
    ("text", "change", "section"),
    [
        ("ttl = 3", "extended", {"ttl": 3, "options": {"slots": 2}, "aliases": ["s"]}),
        ("options = {slots = 2}", "extended", {"options": {"slots": 2}, "aliases": ["s"]}),
        ("options = {slots = 4}", "kept", {"options": {"slots": 4}}),
    ],
)
def test_a_section_gets_what_it_does_not_say(text: str, change: str, section: dict[str, Any]) -> None:
    plan = ImportPlan("/", models={"x": {"options": {"slots": 2}, "aliases": ["s"]}})
    found = edited(f"[models.x]\n{text}\n", plan, replace=False)
    assert ([step.change for step in found.steps], tomllib.loads(found.text)["models"]["x"]) == ([change], section)
    assert edited(found.text, plan, replace=False).text == found.text


def test_a_section_about_another_model_does_not_become_a_file() -> None:
    text = "[models.a]\nttl = 3\n"
    found = edited(text, ImportPlan("/", models={"a": A}), replace=False)
    assert (found.steps[0].change, found.text) == ("kept", text)


def test_variables_of_engines_are_not_shown() -> None:
    found = edited("", ImportPlan("/", models={"a": {**A, "env": {"TOKEN": "hush"}}}), replace=False)
    assert "hush" in found.text
    assert found.steps[0].value == {**A, "env": {"TOKEN": "********"}}


def test_everything_else_in_a_file_stays() -> None:
    text = "# ours\nport = 1 # here\r\n[groups.g]\nmodels = ['x']\nswap = true"
    found = edited(text, PLAN, replace=False)
    assert "# ours\n" in found.text
    assert "[groups.g]\nmodels = ['x']\nswap = true" in found.text.replace("\r\n", "\n")
    assert tomllib.loads(found.text)["models"]["b:1"] == {"path": "/b"}


@pytest.mark.parametrize(
    ("text", "left_out", "models"),
    [
        ("models.x.aliases = ['small']", LeftOut("a", "the alias small", "it is a name of x"), ["a", "b:1"]),
        ("models.small.ttl = 3", LeftOut("a", "the alias small", "it is a name of small"), ["a", "b:1"]),
        ("models.x.aliases = ['b:1']", LeftOut("b:1", "the model", "the file has this name for the model x"), ["a"]),
    ],
)
def test_names_that_the_file_has_for_other_models_are_left_out(text: str, left_out: LeftOut, models: list[str]) -> None:
    found = edited(text, PLAN, replace=True)
    assert found.left_out == [left_out]
    given = tomllib.loads(found.text)["models"]
    assert [name for name in given if "path" in given[name]] == models


def test_a_model_stays_in_its_group() -> None:
    plan = ImportPlan("/", groups={"g": {"models": ["a", "b"], "swap": True}, "h": {"models": ["c"], "swap": True}})
    found = edited("groups.old = {models = ['a', 'c'], exclusive = true}", plan, replace=False)
    assert tomllib.loads(found.text)["groups"]["g"] == {"models": ["b"], "swap": True}
    assert [note.model for note in found.left_out] == ["a", "c"]


def test_a_file_of_another_form_is_refused() -> None:
    with pytest.raises(CommandError, match="cannot be changed here"):
        edited("models = { x = { ttl = 3 } }", PLAN, replace=False)


# The command


@pytest.fixture
def store(tmp_path: Path) -> OllamaStore:
    store = OllamaStore(tmp_path / ".ollama" / "models")
    store.add("tiny", tiny_models() / "models" / "tiny-chat.gguf", params={"seed": 3})
    store.write("broken", "{")
    return store


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEMONBUS_URL", "http://127.0.0.1:1")


@pytest.mark.usefixtures("store", "no_server")
def test_without_a_server_the_file_is_made(lemonbus: Ends, tmp_path: Path) -> None:
    file = tmp_path / "lemonbus" / "lemonbus.toml"
    code, out, err = lemonbus("import", "ollama", "--dry-run")
    assert (code, file.parent.exists()) == (0, False), err
    assert f"Nothing was changed. Without --dry-run, this goes into {file}." in out
    code, out, err = lemonbus("import", "ollama")
    assert code == 0, err
    assert out.startswith("From ~/.ollama/models:\nSETTING")
    assert "models.tiny  added   path request_defaults" in out
    assert "broken  the model" in out
    assert out.endswith(f"Made: {file}\n")
    assert err == "lemonbus: no server is running: it takes effect at the next start\n"
    assert tomllib.loads(file.read_text())["models"]["tiny"]["request_defaults"] == {"seed": 3}
    code, out, _ = lemonbus("import", "ollama")
    assert (code, "models.tiny  there already" in out, f"Unchanged: {file}" in out) == (0, True, True)


@pytest.mark.usefixtures("no_server")
def test_what_cannot_be_read_changes_nothing(lemonbus: Ends, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("- a")
    for words, why in (
        (["ollama", str(tmp_path)], "is not the folder of Ollama's models"),
        (["llama-swap", str(tmp_path / "wrong.yaml")], "expected models"),
        (["lemonade", str(tmp_path)], "has none of Lemonade's files"),
        (["lm-studio", str(tmp_path)], "has no models in folders"),
    ):
        code, out, err = lemonbus("import", *words)
        assert (code, out) == (2, "")
        assert why in err
        code, _, err = lemonbus("import", *words, "--json")
        assert why in json.loads(err)["error"]["message"]
    assert not (tmp_path / "lemonbus").exists()


@pytest.mark.usefixtures("store")
def test_a_server_that_refuses_the_file(server: FakeServer, lemonbus: Ends, tmp_path: Path) -> None:
    server.replies["POST", "/internal/reload"] = Reply({"error": {"message": "no"}}, status=400)
    code, out, err = lemonbus("import", "ollama")
    assert (code, out) == (1, "")
    assert "the server refuses this, and the file is as it was" in err
    assert not (tmp_path / "lemonbus").exists()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("listed", [True, False])
def test_models_that_the_server_does_not_have_afterwards_are_named(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """It reads another file, or it may not read the model's file."""
    monkeypatch.setattr(imports, "READY_S", 0.6)
    answer = {"status": "success", "applied": True, "changes": [], "warnings": ["w"], "repeated": False}
    server.replies["POST", "/internal/reload"] = Reply(answer)
    data = [model("tiny", downloaded=listed), model("other", downloaded=True)]
    models = {"object": "list", "data": data, "has_more": False, "first_id": None, "last_id": None}
    server.replies["GET", "/v1/models?show_all=true"] = Reply(models)
    code, out, err = lemonbus("import", "ollama")
    assert code == (0 if listed else 1)
    assert "Made: " in out
    assert ("tiny: the server does not have this model" in err) == (not listed)
    assert err.startswith("lemonbus: w\n")
    _, out, _ = lemonbus("import", "ollama", "--json")
    shown = json.loads(out)
    assert (shown["change"], shown["missing"]) == ("unchanged", [] if listed else ["tiny"])
    assert shown["left_out"][0]["model"] == "broken"
    assert shown["reload"] == answer


def model(name: str, *, downloaded: bool) -> dict[str, Any]:
    texts = dict.fromkeys(("display_name", "created_at", "checkpoint", "recipe", "device", "dtype"), "x")
    fixed = {"object": "model", "type": "model", "created": 1, "lifecycle": "active", "owned_by": "lemonade"}
    return {"id": name, **texts, **fixed, "labels": [], "recipe_options": {}, "downloaded": downloaded}
