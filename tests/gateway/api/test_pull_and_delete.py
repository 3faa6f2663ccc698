"""pull and delete: bodies, registrations, and the stream of a download's progress."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages import model_files
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import UNKNOWN, progress
from tests.gateway.app_client import AppClient, SeveralMessages


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
