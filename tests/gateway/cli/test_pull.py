"""``lemonbus pull``: progress, registration, failures."""

from __future__ import annotations

import json

import pytest

from tests.gateway.cli.canned_responses import ALL, COMPLETE, PULL, catalogue, model, progress
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import TerminalProcess
from tests.gateway.fake_server import FakeServer, Reply


@pytest.fixture
def repository_server(server: FakeServer) -> FakeServer:
    """A server that has no model and can download all."""
    server.replies[PULL] = Reply(pieces=[COMPLETE])
    server.replies[ALL] = catalogue()
    return server


def test_pull_prints_a_line_for_every_tenth(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[PULL] = Reply(pieces=[*map(progress, range(0, 101, 2)), COMPLETE])
    code, out, err = lemonbus("pull", "A")
    assert (code, out) == (0, "Installed model: A\n")
    assert server.last() == {"model_name": "A", "stream": True}
    lines = err.splitlines()
    assert len(lines) == 11
    assert lines[0] == "m.gguf (1/1) 0 % of 100 B"


def test_pull_does_not_say_0_bytes_of_a_size_that_is_not_known_yet(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[PULL] = Reply(pieces=[progress(0).replace('"bytes_total": 100', '"bytes_total": 0'), COMPLETE])
    assert lemonbus("pull", "A")[2] == "m.gguf (1/1) begins\n"


def test_pull_as_json(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[PULL] = Reply(pieces=[progress(50), COMPLETE])
    code, out, err = lemonbus("pull", "A", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["progress", "complete"]


def test_pull_shows_a_bar_on_a_terminal(server: FakeServer) -> None:
    server.replies[PULL] = Reply(pieces=[progress(50), COMPLETE])
    with TerminalProcess("pull", "A") as terminal:
        assert "━" in terminal.until("Installed model: A")
        assert terminal.ends() == 0


@pytest.mark.parametrize(
    ("pieces", "cut", "code", "expected"),
    [
        (['event: error\ndata: {"error":"disk full","code":"download_failed","request_id":"req-1"}\n\n'], False, 1,
         "disk full (download_failed, req-1)"),
        ([progress(5)], False, 1, "the download of A broke off"),
        ([progress(5)], True, 1, "broke off"),
    ],
)  # fmt: skip
def test_pull_fails(pieces: list[str], cut: bool, code: int, expected: str, server: FakeServer, lemonbus: Ends) -> None:
    server.replies[PULL] = Reply(pieces=pieces, cut=cut)
    ended, out, err = lemonbus("pull", "A")
    assert (ended, out) == (code, "")
    assert expected in err


def test_pull_registers_a_model_of_several_files(repository_server: FakeServer, lemonbus: Ends) -> None:
    words = "pull Z --checkpoint o/r:z.gguf --recipe sd-cpp --part vae=o/v:v.gguf --part text_encoder=o/t:t.gguf"
    assert lemonbus(*words.split())[:2] == (0, "Installed model: user.Z\n")
    assert repository_server.last() == {
        "model_name": "user.Z",
        "checkpoint": "o/r:z.gguf",
        "checkpoints": {"vae": "o/v:v.gguf", "text_encoder": "o/t:t.gguf"},
        "recipe": "sd-cpp",
        "stream": True,
    }
    code, _, err = lemonbus("pull", "Z", "--part", "o/v:v.gguf")
    assert (code, "--part is PART=OWNER/REPO:FILE" in err) == (2, True)


def test_pull_registers(repository_server: FakeServer, lemonbus: Ends) -> None:
    words = "pull Phi --checkpoint o/r:Q4_0 --mmproj m.gguf --vision --embedding --recipe llamacpp"
    assert lemonbus(*words.split())[:2] == (0, "Installed model: user.Phi\n")
    assert repository_server.last() == {
        "model_name": "user.Phi",
        "checkpoint": "o/r:Q4_0",
        "recipe": "llamacpp",
        "mmproj": "m.gguf",
        "vision": True,
        "embedding": True,
        "stream": True,
    }
    assert lemonbus("pull", "user.Phi", "--checkpoint", "o/r")[0] == 0
    assert repository_server.last() == {
        "model_name": "user.Phi",
        "checkpoint": "o/r",
        "recipe": "llamacpp",
        "stream": True,
    }
    assert lemonbus("pull", "Phi", "--name", "x")[0] == 2


def test_pull_of_a_repository_registers_what_is_chosen(repository_server: FakeServer, lemonbus: Ends) -> None:
    variant = {"name": "Q4_K_M", "primary_file": "r-Q4_K_M.gguf", "files": ["r-Q4_K_M.gguf"], "size_bytes": 5}
    repository_server.replies["GET", "/v1/pull/variants?checkpoint=o/r-GGUF"] = Reply(
        {
            "checkpoint": "o/r-GGUF",
            "recipe": "llamacpp",
            "suggested_name": "r-GGUF",
            "suggested_labels": ["vision"],
            "mmproj_files": ["mmproj-F16.gguf"],
            "variants": [{**variant, "sharded": False}],
        }
    )
    expected = {"recipe": "llamacpp", "vision": True, "mmproj": "mmproj-F16.gguf", "stream": True}
    assert lemonbus("pull", "o/r-GGUF")[:2] == (0, "Installed model: user.r-GGUF\n")
    assert repository_server.last() == {"model_name": "user.r-GGUF", "checkpoint": "o/r-GGUF:Q4_K_M", **expected}
    assert lemonbus("pull", "o/r-GGUF:Q8_0", "--name", "eight")[0] == 0
    assert repository_server.last() == {"model_name": "user.eight", "checkpoint": "o/r-GGUF:Q8_0", **expected}


def test_pull_of_a_repository_without_gguf_models(repository_server: FakeServer, lemonbus: Ends) -> None:
    assert lemonbus("pull", "o/r-onnx", "--recipe", "oga-cpu")[0] == 0
    expected = {"checkpoint": "o/r-onnx", "recipe": "oga-cpu", "stream": True}
    assert repository_server.last() == {"model_name": "user.r-onnx", **expected}
    assert not [path for _, path, _, _ in repository_server.asked if "variants" in path]


def test_pull_of_a_checkpoint_of_the_catalogue_is_that_model(repository_server: FakeServer, lemonbus: Ends) -> None:
    repository_server.replies[ALL] = catalogue(model("A"))
    assert lemonbus("pull", "o/A:Q4_0")[1] == "Installed model: A\n"
    assert repository_server.last() == {"model_name": "A", "stream": True}


JOB = {
    "id": "model:A", "type": "model", "model_name": "A", "status": "paused", "running": False, "complete": False,
    "file": "a.gguf", "file_index": 1, "total_files": 2, "bytes_downloaded": 500_000_000, "bytes_total": 2_000_000_000,
    "percent": 25,
}  # fmt: skip
PAUSE = ("POST", "/v1/downloads/pause")


def test_a_download_is_paused(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[PAUSE] = Reply(JOB)
    code, out, _ = lemonbus("pull", "--pause", "A")
    assert code == 0
    assert out == "Paused A: 500 MB of 2.0 GB, 25 % of a.gguf (1/2). `lemonbus pull` resumes it.\n"
    assert server.last() == {"model_name": "A"}
    assert json.loads(lemonbus("pull", "--pause", "A", "--json")[1])["status"] == "paused"
    server.replies[PAUSE] = Reply({**JOB, "complete": True})
    assert lemonbus("pull", "--pause", "A")[1] == "A is already downloaded.\n"
    assert lemonbus("pull", "--pause", "A", "--vision")[0] == 2


def test_downloads_are_listed(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["GET", "/v1/downloads"] = Reply(
        [JOB, {**JOB, "model_name": "B", "status": "error", "error": "disk full"}]
    )
    _, out, _ = lemonbus("downloads")
    assert [line.split(maxsplit=2) for line in out.splitlines()] == [
        ["MODEL", "STATE", "PROGRESS"],
        ["A", "paused", "500 MB of 2.0 GB, 25 % of a.gguf (1/2)"],
        ["B", "error", "disk full"],
    ]
    server.replies["GET", "/v1/downloads"] = Reply([])
    assert lemonbus("downloads")[1] == "Nothing is being downloaded.\n"
