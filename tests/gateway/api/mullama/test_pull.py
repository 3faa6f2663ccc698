"""Mullama's pull: its answer, and the lines of its stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.mullama.pull import MullamaPullWriter
from protocol.failures import Code, Failure
from protocol.messages import model_files
from protocol.messages.calls import Progress
from protocol.messages.model_details import DescribeModels
from tests.gateway.api.described_models import LLAMA
from tests.gateway.api.error_bodies import is_api_error as is_error
from tests.gateway.app_client import AppClient, SeveralMessages

NAME = "llama3.2:1b"
UNKNOWN = Failure(Code.MODEL_NOT_FOUND, "Model 'unknown-model' not found", model="unknown-model", param="model")


def test_a_pull_answers_when_the_model_is_there(ask: AppClient) -> None:
    ask.reports[model_files.PullModel] = model_files.Pulled("llama3.2-1b")
    ask.reports[DescribeModels] = [LLAMA]
    assert ask("POST", "/api/models/pull", {"name": NAME}).json == {
        "status": "success",
        "model": NAME,
        "repo": "bartowski/Llama-3.2-1B-Instruct-GGUF",
        "size_bytes": 807_694_464,
    }
    assert ask.asked(model_files.PullModel) == [model_files.PullModel(1, NAME, adopt=True)]


def progress(done: int, total: int, index: int = 1, of: int = 1) -> Progress:
    return Progress(0, "m", f"file{index}.gguf", index, of, done, total)


@pytest.mark.parametrize(
    ("reports", "lines"),
    [
        (
            [progress(25, 100), model_files.Pulled("m")],
            [
                {"status": "downloading", "progress": 0.25, "total_bytes": 100, "downloaded_bytes": 25},
                {"status": "verifying"},
                {"status": "success", "model": NAME, "done": True},
            ],
        ),
        ([model_files.Pulled("m")], [{"status": "verifying"}, {"status": "success", "model": NAME, "done": True}]),
        (
            [progress(5, 10), Failure(Code.DOWNLOAD_FAILED, "the hub is gone", model="m")],
            [
                {"status": "downloading", "progress": 0.5, "total_bytes": 10, "downloaded_bytes": 5},
                {"error": "the hub is gone", "code": "download_failed", "request_id": "r1", "model": "m"},
            ],
        ),
        (
            [Failure(Code.DOWNLOAD_FAILED, "the hub is gone")],
            [{"error": "the hub is gone", "code": "download_failed", "request_id": "r1"}],
        ),
    ],
)
def test_the_lines_of_a_streamed_pull(ask: AppClient, reports: list[Any], lines: list[Any]) -> None:
    ask.reports[model_files.PullModel] = SeveralMessages(reports)
    body = {"name": NAME, "stream": True}
    result = ask("POST", "/api/models/pull", body, headers={"X-Request-ID": "r1"})
    assert (result.status_code, result.headers["Content-Type"]) == (200, "application/x-ndjson")
    assert [json.loads(line) for line in result.text.splitlines()] == lines
    assert result.text.endswith("\n")


def test_progress_of_several_files_never_falls() -> None:
    writer = MullamaPullWriter(NAME)
    steps = [progress(50, 100, 1, 2), progress(100, 100, 1, 2), progress(0, 300, 2, 2), progress(300, 300, 2, 2)]
    lines = [json.loads(writer.progress(step)) for step in steps]
    assert [line["progress"] for line in lines] == [0.25, 0.5, 0.5, 1.0]
    assert [(line["downloaded_bytes"], line["total_bytes"]) for line in lines] == [
        (50, 100),
        (100, 100),
        (100, 400),
        (400, 400),
    ]


def test_an_unknown_model_of_a_streamed_pull_has_its_status(ask: AppClient) -> None:
    ask.reports[model_files.PullModel] = UNKNOWN
    for stream in (True, False):
        is_error(
            ask("POST", "/api/models/pull", {"name": "unknown-model", "stream": stream}),
            404,
            "not_found",
            "model_not_found",
        )
