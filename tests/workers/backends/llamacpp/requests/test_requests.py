"""What reaches the engine of a request, and which requests it never gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.failures import LemonbusError
from tests.workers.backends.llamacpp.requested_backend import made
from workers.backends.llamacpp import slot_files
from workers.backends.llamacpp.requests.context_check import MAX_READ_BYTES
from workers.backends.requests.generation_request import SHORT_BODY_BYTES, UNSTREAMED_MAX_TOKENS


@pytest.mark.parametrize(
    ("endpoint", "stream", "body", "streamed", "weight"),
    [
        ("chat/completions", True, {}, True, 1),
        ("chat/completions", False, {}, True, 1),
        ("chat/completions", False, {"n": 3}, True, 3),
        ("chat/completions", False, {"logprobs": True}, False, 1),
        ("chat/completions", True, {"logprobs": True}, True, 1),
        ("completions", False, {"logprobs": 2, "prompt": "a"}, True, 1),
        ("completions", False, {"prompt": ["a", "b"], "n": 2}, True, 4),
        ("completions", False, {"prompt": [[1], [2, 3]]}, True, 2),
        ("completions", False, {"prompt": [1, 2, 3]}, True, 1),
        ("completions", False, {"prompt": []}, True, 1),
    ],
)
def test_requests(endpoint: str, stream: bool, body: dict[str, Any], streamed: bool, weight: int) -> None:
    request = made().request(endpoint, "", json.dumps({**body, "odd": 1.50}).encode(), stream)
    assert (request.streamed, request.weight, request.path) == (streamed, weight, f"/v1/{endpoint}")
    sent = json.loads(request.body)
    assert sent["odd"] == 1.5
    if streamed:
        assert sent["stream"] is True
        assert "return_progress" not in sent
        assert sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("body", "streamed"),
    [
        ({"prompt": "a", "max_tokens": 8}, False),
        ({"prompt": "a", "max_tokens": UNSTREAMED_MAX_TOKENS}, False),
        ({"prompt": "a", "max_tokens": UNSTREAMED_MAX_TOKENS + 1}, True),
        ({"prompt": "a", "max_tokens": 8, "n_predict": 999}, True),
        ({"prompt": "a", "max_tokens": -1}, True),
        ({"prompt": "a"}, True),
        ({"prompt": "a" * SHORT_BODY_BYTES, "max_tokens": 8}, True),
        ({"prompt": ["a", "b"], "max_tokens": 8}, True),
        ({"prompt": "a", "max_tokens": 8, "n": 2}, True),
    ],
)
def test_only_what_ends_at_once_is_asked_for_whole(body: dict[str, Any], streamed: bool) -> None:
    assert made().request("completions", "", json.dumps(body).encode(), False).streamed is streamed
    assert made().request("completions", "", json.dumps(body).encode(), True).streamed


def test_progress_is_asked_for_where_a_prompt_takes_time() -> None:
    request = made().request("completions", "", json.dumps({"prompt": "long " * 200}).encode(), False)
    assert json.loads(request.body)["return_progress"] is True


def test_usage_and_progress_for_a_client_that_asked_for_them() -> None:
    request = made().request(
        "completions", "", b'{"stream_options":{"include_usage":true},"return_progress":true}', True
    )
    assert (request.usage, request.progress) == (True, True)
    request = made().request("completions", "", b'{"stream_options":null}', True)
    assert (request.usage, request.progress) == (False, False)


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b'{"stream_options":3}', b"[" * 100_000, b""])
def test_invalid_bodies(body: bytes) -> None:
    with pytest.raises(LemonbusError) as raised:
        made().request("completions", "", body, stream=False)
    assert raised.value.failure.http_status == 400


@pytest.mark.parametrize(
    ("query", "path"),
    [("GET", "/slots"), ("save/0", "/slots/0?action=save"), ("restore/3", "/slots/3?action=restore")],
)
def test_slots_requests(query: str, path: str) -> None:
    request = made().request("slots", query, b"", stream=False)
    assert (request.path, request.weight) == (path, 0)


@pytest.mark.parametrize(("query", "status"), [("erase/4", 404), ("burn/0", 400), ("save/x", 400), ("save/-1", 400)])
def test_invalid_slots(query: str, status: int) -> None:
    with pytest.raises(LemonbusError) as raised:
        made().request("slots", query, b"", stream=False)
    assert raised.value.failure.http_status == status


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_SAVED_FILES", 2), ("MAX_SAVED_BYTES", 8), ("MIN_FREE_BYTES", 2**62)]
)
def test_clients_do_not_fill_the_disk_with_saved_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    backend = made(llamacpp_args=f"--slot-save-path {tmp_path}")
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"four")
    save = b'{"filename":"three"}'
    assert backend.request("slots", "save/0", save, stream=False).path == "/slots/0?action=save"
    monkeypatch.setattr(slot_files, limit, value)
    with pytest.raises(LemonbusError, match="administrator must remove") as raised:
        backend.request("slots", "save/0", save, stream=False)
    assert raised.value.failure.http_status == 409
    backend.request("slots", "restore/0", save, stream=False)
    backend.request("slots", "erase/0", b"", stream=False)


def test_a_saved_slot_that_is_replaced_needs_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = made(llamacpp_args=f"--slot-save-path {tmp_path}")
    (tmp_path / "one").write_bytes(b"four")
    monkeypatch.setattr(slot_files, "MAX_SAVED_FILES", 1)
    backend.request("slots", "save/0", b'{"filename":"one"}', stream=False)
    with pytest.raises(LemonbusError):
        backend.request("slots", "save/0", b'{"filename":"two"}', stream=False)


@pytest.mark.parametrize("field", ["input_prefix", "input_suffix", "input_extra"])
def test_a_text_to_fill_in_has_a_limit_of_its_own(field: str) -> None:
    """The engine uses only as much of it as its context can hold, but tokenizes all of it: with some vocabularies, 4 MiB took minutes."""
    text = "a" * MAX_READ_BYTES
    body = {"input_prefix": "", "input_suffix": "", field: [{"text": text}] if field == "input_extra" else text}
    with pytest.raises(LemonbusError, match="send less of it at once") as caught:
        made().request("infill", "", json.dumps(body).encode(), True)
    assert caught.value.failure.param == field
    made().request("infill", "", json.dumps({**body, field: ""}).encode(), True)
