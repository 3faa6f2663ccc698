"""pull and delete: bodies, registrations, and the stream of a download's progress."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.api.common.progress_events import PING, PROGRESS_INTERVAL_S, ProgressStream
from gateway.api.lemonade.model_files import PullEventWriter
from protocol.failures import Code, Failure
from protocol.messages import model_files
from protocol.messages.backend_installs import InstallBackend, ListInstalls, StopInstall
from protocol.messages.calls import CallResult, Progress
from protocol.wire import envelope
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import UNKNOWN
from tests.gateway.app_client import AppClient, SeveralMessages


def progress(done: int, total: int = 100, index: int = 1, of: int = 2) -> Progress:
    return Progress(0, "m", f"file{index}.gguf", index, of, done, total)


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream; comments are left out."""
    found = []
    for block in text.split("\n\n"):
        if block and not block.startswith(":"):
            first, second = block.split("\n")
            found.append((first.removeprefix("event: "), json.loads(second.removeprefix("data: "))))
    return found


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_pull_answers_when_the_model_is_downloaded(ask: AppClient, prefix: str) -> None:
    ask.reports[model_files.PullModel] = model_files.Pulled("m", 2)
    result = ask("POST", f"{prefix}/pull", {"model_name": "m"})
    assert result.json == {"status": "success", "message": "Installed model: m", "model_name": "m"}
    assert not ask.asked(model_files.PullModel)[0].progress


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


@pytest.mark.parametrize("field", ["source", "registry_source"])
def test_another_registry_of_models_is_refused_by_name(ask: AppClient, field: str) -> None:
    ask.reports[model_files.PullModel] = model_files.Pulled("m", 2)
    body = is_error(ask("POST", "/v1/pull", {"model_name": "m", field: "modelscope"}), 400, "invalid_request", field)
    assert "must be huggingface" in body["message"]
    assert not ask.bus.sent
    for accepted in ("huggingface", None):
        assert ask("POST", "/v1/pull", {"model_name": "m", field: accepted}).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_pull_sends_a_registration_to_the_supervisor(ask: AppClient, stream: bool) -> None:
    ask.reports[model_files.PullModel] = model_files.Pulled("user.x")
    fields = {"checkpoint": "a/b:Q4", "recipe": "llamacpp", "mmproj": "m.gguf"}
    switches = {"embedding": True, "vision": True, "reasoning": False, "reranking": None}
    body = {"model_name": "user.x", **fields, **switches, "stream": stream}
    assert ask("POST", "/v1/pull", body).status_code == 200
    (call,) = ask.asked(model_files.PullModel)
    assert call.progress is stream
    assert call.registration == model_files.Registration("a/b:Q4", "llamacpp", "m.gguf", ["vision", "embeddings"])


def test_image_defaults_of_a_new_model_are_options_unless_its_options_say_otherwise(ask: AppClient) -> None:
    ask.reports[model_files.PullModel] = model_files.Pulled("user.x")
    fields = {"model_name": "user.x", "checkpoint": "a/b:x.safetensors", "recipe": "sd-cpp"}
    defaults = {"steps": 4, "width": 512, "sampling_method": "", "cfg_scale": None}
    ask("POST", "/v1/pull", {**fields, "image_defaults": defaults, "recipe_options": {"width": 64}})
    (call,) = ask.asked(model_files.PullModel)
    assert call.registration is not None
    assert call.registration.options == {"steps": 4, "width": 64}
    is_error(ask("POST", "/v1/pull", {**fields, "image_defaults": {"steps": [4]}}), 400, "invalid_request")


def test_delete_reports_what_it_removed(ask: AppClient) -> None:
    ask.reports[model_files.DeleteModel] = model_files.Deleted("m", 2, ["user.n"])
    body = ask("POST", "/v1/delete", {"model_name": "m"}).json
    assert body.items() >= {"status": "success", "message": "Deleted model: m", "model_name": "m"}.items()
    assert (body["files_removed"], body["kept_for"]) == (2, ["user.n"])
    assert "removed" not in body
    is_error(ask("POST", "/v1/delete", {}), 400, "invalid_request")


def test_a_dry_run_of_a_deletion_says_what_it_would_remove(ask: AppClient) -> None:
    file = model_files.ModelFile("/hub/m.gguf", 5)
    ask.reports[model_files.DeleteModel] = model_files.Deleted("m", 1, ["user.n"], [file])
    body = ask("POST", "/v1/delete", {"model_name": "m", "dry_run": True}).json
    assert body["removed"] == [{"path": "/hub/m.gguf", "size": 5}]
    assert (body["files_removed"], body["kept_for"], body["message"]) == (0, ["user.n"], "m can be deleted")
    assert ask.asked(model_files.DeleteModel)[0].dry_run is True


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({}, 400, "invalid_request"),
        ({"model_name": "m", "stream": "yes"}, 400, "invalid_request"),
        ({"model_name": "m", "stream": True, "subscribe": "no"}, 400, "invalid_request"),
        ({"model_name": "x", "checkpoint": "a/b:Q4", "recipe": "llamacpp"}, 400, "invalid_request"),
        ({"model_name": "user.x", "checkpoint": "a/b:Q4"}, 400, "invalid_request"),
        ({"model_name": "user.x", "recipe": "llamacpp"}, 400, "invalid_request"),
        ({"model_name": "user.x", "mmproj": "m.gguf"}, 400, "invalid_request"),
        ({"model_name": "user.x", "checkpoint": "a/b:Q4", "recipe": "llamacpp", "vision": 1}, 400, "invalid_request"),
    ],
)
def test_pull_names_the_wrong_field(ask: AppClient, body: dict[str, Any], status: int, kind: str) -> None:
    is_error(ask("POST", "/v1/pull", body), status, kind)
    assert not ask.bus.sent


def test_a_streamed_pull_has_the_documented_events(ask: AppClient) -> None:
    ask.reports[model_files.PullModel] = SeveralMessages([progress(40), model_files.Pulled("m", 2)])
    result = ask("POST", "/v1/pull", {"model_name": "m", "stream": True})
    assert result.headers["Content-Type"].startswith("text/event-stream")
    assert events_of(result.text) == [
        (
            "progress",
            {
                "file": "file1.gguf",
                "file_index": 1,
                "total_files": 2,
                "bytes_downloaded": 40,
                "bytes_total": 100,
                "percent": 40,
            },
        ),
        ("complete", {"file_index": 2, "total_files": 2, "percent": 100}),
    ]
    assert ask.asked(model_files.PullModel)[0].progress


@pytest.mark.parametrize("before", [[], [progress(1)]])
def test_a_download_that_fails_ends_the_stream_with_an_error_event(ask: AppClient, before: list[Any]) -> None:
    broken = Failure(Code.DOWNLOAD_FAILED, "the hub has no such checkpoint")
    ask.reports[model_files.PullModel] = SeveralMessages([*before, broken])
    result = ask("POST", "/v1/pull", {"model_name": "m", "stream": True}, headers={"X-Request-ID": "r1"})
    assert result.status_code == 200
    name, data = events_of(result.text)[-1]
    assert (name, data) == (
        "error",
        {"error": "the hub has no such checkpoint", "code": "download_failed", "request_id": "r1"},
    )
    assert "complete" not in result.text


def test_an_unknown_name_is_404_in_a_streamed_request_too(ask: AppClient) -> None:
    ask.reports[model_files.PullModel] = UNKNOWN
    is_error(ask("POST", "/v1/pull", {"model_name": "x", "stream": True}), 404, "not_found")


class Script:
    """A call whose messages arrive at given times."""

    def __init__(self, *happenings: tuple[float, Any]) -> None:
        self.now = 0.0
        self.report = envelope.pack_payload(model_files.Pulled("m", 1))
        self.closed = 0
        self._left = list(happenings)

    def clock(self) -> float:
        return self.now

    def next(self, seconds: float) -> Any:
        when, what = self._left[0]
        if when > self.now + seconds:
            self.now += seconds
            return None
        self._left.pop(0)
        self.now = max(self.now, when)
        if isinstance(what, Failure):
            raise what.raised()
        return what

    def close(self) -> None:
        self.closed += 1


def played(*happenings: tuple[float, Any], silence: float = 5.0) -> list[tuple[float, bytes]]:
    follower = Script(*happenings)
    stream = ProgressStream(follower, follower.next(silence), PullEventWriter(), "r1", silence, follower.clock)  # type: ignore[arg-type]
    return [(follower.now, piece) for piece in stream]


def test_progress_events_are_at_most_ten_a_second_and_never_stale() -> None:
    reported = played(*[(step / 100, progress(step)) for step in range(1, 301)], (3.005, CallResult(1)))
    assert reported[-1][1].startswith(b"event: complete")
    seconds = [when for when, piece in reported]
    for start in seconds:
        assert sum(start <= when < start + 1 for when in seconds) <= 10
    assert b'"percent":100' in reported[-1][1]
    assert json.loads(reported[-2][1].partition(b"data: ")[2])["bytes_downloaded"] == 300


def test_a_delayed_progress_event_is_sent_after_the_interval() -> None:
    reported = played((0.0, progress(1)), (0.01, progress(2)), (9.0, CallResult(1)))
    assert [when for when, piece in reported if b"progress" in piece] == [0.0, PROGRESS_INTERVAL_S]


def test_comments_are_sent_during_silence() -> None:
    reported = played((12.0, CallResult(1)))
    assert [piece for _, piece in reported[:-1]] == [PING, PING]


def test_nothing_is_written_to_a_client_that_hung_up() -> None:
    assert played((0.0, progress(1)), (0.2, Failure(Code.CANCELLED, "the client hung up")))[1:] == []


def test_closing_the_stream_closes_the_call_even_before_its_first_event() -> None:
    follower = Script((0.0, progress(1)))
    ProgressStream(follower, None, PullEventWriter(), "r1", 5.0, follower.clock).close()  # type: ignore[arg-type]
    assert follower.closed == 1
