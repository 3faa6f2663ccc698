"""The terminal's list, pull and delete: what they ask of a server, and what they print."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from tests.gateway.webserver import Reply, WebServer, serving

ALL = ("GET", "/v1/models?show_all=true")
PULL = ("POST", "/v1/pull")
COMPLETE = 'event: complete\ndata: {"file_index":1,"total_files":1,"percent":100}\n\n'
Ends = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WebServer]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with serving() as standin:
        monkeypatch.setenv("LEMONBUS_URL", standin.url)
        standin.replies[PULL] = Reply(pieces=[COMPLETE])
        standin.replies[ALL] = Reply({"data": [], "hidden": []})
        yield standin


@pytest.fixture
def lemonbus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ends:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        code = main(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def model(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "checkpoint": f"o/{name}:Q4_0", "recipe": "llamacpp", "downloaded": False, "size": 2.5, **more}


def test_list_tells_how_many_are_hidden_and_why(server: WebServer, lemonbus: Ends) -> None:
    hidden = [{"id": "X-FLM", "recipe": "flm", "size": 1.2, "reason": "Requires an AMD NPU"}]
    server.replies[ALL] = Reply({"data": [model("A", downloaded=True), model("B")], "hidden": hidden})
    code, out, err = lemonbus("list")
    assert (code, err) == (0, "")
    assert "A" in out
    assert "\nB" not in out
    code, out, err = lemonbus("list", "--all")
    assert "2.5 GB" in out
    assert "1 more cannot be run here; lemonbus list --hidden says why." in err
    code, out, _ = lemonbus("list", "--hidden")
    assert "X-FLM" in out
    assert "Requires an AMD NPU" in out


def test_pull_registers(server: WebServer, lemonbus: Ends) -> None:
    words = "pull Phi --checkpoint o/r:Q4_0 --mmproj m.gguf --vision --embedding --recipe llamacpp"
    assert lemonbus(*words.split())[:2] == (0, "Installed model: user.Phi\n")
    assert server.last() == {
        "model_name": "user.Phi",
        "checkpoint": "o/r:Q4_0",
        "recipe": "llamacpp",
        "mmproj": "m.gguf",
        "vision": True,
        "embedding": True,
        "stream": True,
    }
    assert lemonbus("pull", "user.Phi", "--checkpoint", "o/r")[0] == 0
    assert server.last() == {"model_name": "user.Phi", "checkpoint": "o/r", "recipe": "llamacpp", "stream": True}
    assert lemonbus("pull", "Phi", "--name", "x")[0] == 2


def test_pull_of_a_repository_registers_what_is_chosen(server: WebServer, lemonbus: Ends) -> None:
    variant = {"name": "Q4_K_M", "primary_file": "r-Q4_K_M.gguf", "files": ["r-Q4_K_M.gguf"], "size_bytes": 5}
    server.replies["GET", "/v1/pull/variants?checkpoint=o/r-GGUF"] = Reply(
        {
            "checkpoint": "o/r-GGUF",
            "recipe": "llamacpp",
            "suggested_name": "r-GGUF",
            "suggested_labels": ["vision"],
            "mmproj_files": ["mmproj-F16.gguf"],
            "variants": [{**variant, "sharded": False}],
        }
    )
    said = {"recipe": "llamacpp", "vision": True, "mmproj": "mmproj-F16.gguf", "stream": True}
    assert lemonbus("pull", "o/r-GGUF")[:2] == (0, "Installed model: user.r-GGUF\n")
    assert server.last() == {"model_name": "user.r-GGUF", "checkpoint": "o/r-GGUF:Q4_K_M", **said}
    assert lemonbus("pull", "o/r-GGUF:Q8_0", "--name", "eight")[0] == 0
    assert server.last() == {"model_name": "user.eight", "checkpoint": "o/r-GGUF:Q8_0", **said}


def test_pull_of_a_repository_without_gguf_models(server: WebServer, lemonbus: Ends) -> None:
    assert lemonbus("pull", "o/r-onnx", "--recipe", "oga-cpu")[0] == 0
    said = {"checkpoint": "o/r-onnx", "recipe": "oga-cpu", "stream": True}
    assert server.last() == {"model_name": "user.r-onnx", **said}
    assert not [path for _, path, _, _ in server.asked if "variants" in path]


def test_pull_of_a_checkpoint_of_the_catalogue_is_that_model(server: WebServer, lemonbus: Ends) -> None:
    server.replies[ALL] = Reply({"data": [model("A")]})
    assert lemonbus("pull", "o/A:Q4_0")[1] == "Installed model: A\n"
    assert server.last() == {"model_name": "A", "stream": True}


def test_delete(server: WebServer, lemonbus: Ends) -> None:
    answer = {"status": "success", "message": "Deleted model: A", "kept_for": []}
    server.replies["POST", "/v1/delete"] = Reply(answer)
    assert lemonbus("delete", "A") == (0, "Deleted model: A\n", "")
    assert server.last() == {"model_name": "A"}
    server.replies["POST", "/v1/delete"] = Reply({**answer, "kept_for": ["user.B"]})
    assert "user.B" in lemonbus("delete", "A", "--yes")[2]
    assert json.loads(lemonbus("delete", "A", "--json")[1])["status"] == "success"
    server.replies["POST", "/v1/delete"] = Reply({"message": "there is no model 'A'"}, 404)
    code, out, err = lemonbus("delete", "A")
    assert (code, out) == (1, "")
    assert "no model" in err
