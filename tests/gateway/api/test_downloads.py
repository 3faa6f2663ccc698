"""Downloads: how they are listed, paused, resumed, cancelled and removed, and a pull that does not wait for its end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages import model_files
from protocol.messages.backend_installs import InstallBackend, ListInstalls, StopInstall
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import progress
from tests.gateway.app_client import AppClient

RUNNING = model_files.DownloadReport("m", progress(30), completed_bytes=7)

JOB = {
    "id": "model:m",
    "type": "model",
    "model_name": "m",
    "status": "downloading",
    "running": True,
    "complete": False,
    "file": "file1.gguf",
    "file_index": 1,
    "total_files": 2,
    "bytes_downloaded": 30,
    "bytes_total": 100,
    "percent": 30,
    "total_download_size": 0,
    "completed_files_bytes": 7,
    "cumulative_bytes_downloaded": 37,
    "overall_bytes_downloaded": 37,
}


def test_a_client_that_does_not_subscribe_gets_the_download_at_once(ask: AppClient) -> None:
    ask.reports[model_files.PullModel] = RUNNING
    result = ask("POST", "/v1/pull", {"model_name": "m", "stream": True, "subscribe": False})
    assert (result.headers["Content-Type"], result.json) == ("application/json", JOB)
    (call,) = ask.asked(model_files.PullModel)
    assert (call.detached, call.progress) == (True, False)
    ask.reports[model_files.PullModel] = model_files.Pulled("m", 2)
    streamed = ask("POST", "/v1/pull", {"model_name": "m", "stream": True, "subscribe": True})
    assert streamed.headers["Content-Type"].startswith("text/event-stream")
    assert streamed.headers["X-Accel-Buffering"] == "no"
    assert "percent" not in ask("POST", "/v1/pull", {"model_name": "m", "subscribe": False}).json


def test_a_download_is_paused(ask: AppClient) -> None:
    ask.reports[model_files.PauseDownload] = model_files.DownloadReport(
        "m", progress(30), paused=True, completed_bytes=7
    )
    result = ask("POST", "/v1/downloads/pause", {"model_name": "m"})
    assert result.json == {**JOB, "status": "paused", "running": False}
    assert ask.asked(model_files.PauseDownload)[0].model == "m"


CANCELLED = Failure(Code.OPERATOR_CANCELLED, "it was cancelled")


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_downloads_are_controlled(ask: AppClient, prefix: str) -> None:
    def control(download: str, action: str) -> Any:
        return ask("POST", f"{prefix}/downloads/control", {"id": download, "action": action}).json

    ask.reports.update(
        {
            model_files.PauseDownload: structs.replace(RUNNING, paused=True),
            model_files.PullModel: RUNNING,
            model_files.CancelDownload: structs.replace(RUNNING, ended=True, failure=CANCELLED),
            InstallBackend: model_files.DownloadReport("llamacpp:vulkan"),
            StopInstall: model_files.DownloadReport("llamacpp:vulkan", paused=True),
        }
    )
    assert control("model:m", "pause") == {**JOB, "status": "paused", "running": False}
    assert control("model:m", "resume") == JOB
    code = {"code": "cancelled_by_operator"}
    assert control("model:m", "cancel") == {**JOB, **code, "status": "cancelled", "running": False}
    assert control("model:m", "remove") == {"status": "ok"}
    assert ask.asked(model_files.PullModel)[0].detached
    assert [(call.model, call.remove) for call in ask.asked(model_files.CancelDownload)] == [("m", False), ("m", True)]
    for action, status in (("pause", "paused"), ("resume", "downloading")):
        job = control("backend:llamacpp:vulkan", action)
        assert (job["id"], job["status"]) == ("backend:llamacpp:vulkan", status)
    for action in ("cancel", "remove"):
        control("backend:llamacpp:vulkan", action)
    stops = [(call.name, call.pause, call.remove) for call in ask.asked(StopInstall)]
    assert stops == [("llamacpp:vulkan", *each) for each in ((True, False), (False, False), (False, True))]
    (install,) = ask.asked(InstallBackend)
    assert (install.recipe, install.backend, install.detached) == ("llamacpp", "vulkan", True)


def test_a_download_that_is_not_listed_can_only_be_removed(ask: AppClient) -> None:
    ask.reports[model_files.CancelDownload] = ask.reports[model_files.PauseDownload] = Failure(Code.NOT_FOUND, "no")
    for download in ("model:m", "thing:m", "m"):
        for action in ("pause", "cancel"):
            body = {"id": download, "action": action}
            is_error(ask("POST", "/v1/downloads/control", body), 404, "not_found")
        assert ask("POST", "/v1/downloads/control", {"id": download, "action": "remove"}).json == {
            "status": "ok",
            "missing": True,
        }
    for wrong, param in (({"action": "pause"}, "id"), ({"id": "model:m", "action": "stop"}, "action")):
        is_error(ask("POST", "/v1/downloads/control", wrong), 400, "invalid_request", param)


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_downloads_shows_those_that_run_and_have_ended(ask: AppClient, prefix: str) -> None:
    failed = Failure(Code.DOWNLOAD_FAILED, "the hub is gone")
    ask.reports[model_files.ListDownloads] = [
        RUNNING,
        model_files.DownloadReport("n", ended=True),
        model_files.DownloadReport("o", progress(50), ended=True, failure=failed),
        model_files.DownloadReport("p", ended=True, failure=CANCELLED),
    ]
    ask.reports[ListInstalls] = [model_files.DownloadReport("llamacpp:vulkan", progress(10, of=1))]
    first, second, third, fourth, backend = ask("GET", f"{prefix}/downloads").json
    assert first == JOB
    assert (fourth["status"], fourth["running"], "error" in fourth) == ("cancelled", False, False)
    assert (backend["id"], backend["type"], backend["model_name"], backend["total_download_size"]) == (
        "backend:llamacpp:vulkan",
        "backend",
        "llamacpp:vulkan",
        100,
    )
    assert (second["status"], second["complete"], second["running"], second["percent"]) == (
        "completed",
        True,
        False,
        100,
    )
    assert (third["status"], third["complete"], third["running"], third["percent"]) == ("error", False, False, 50)
    assert (third["error"], third["code"]) == ("the hub is gone", "download_failed")
