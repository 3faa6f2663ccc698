"""``/readyz``, and what a drained server refuses: with an application, and a fake bus that answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.failures import Code, Failure
from protocol.messages.health import GetHealth
from protocol.messages.models import Loaded, LoadModel
from protocol.messages.readiness import (
    AwaitedModel,
    DrainReport,
    GetDrain,
    GetReadiness,
    ReadinessReport,
    ServerReadiness,
    SetDrain,
)
from protocol.messages.work import SubmitRequest
from tests.gateway.api.error_bodies import is_error
from tests.gateway.api.supervisor_reports import HEALTH
from tests.gateway.app_client import AppClient, SeveralMessages

LOADING = [AwaitedModel("big", "loading", "the engine exited with code 3"), AwaitedModel("small", "queued", "")]
INFERENCE = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


def drain(ask: AppClient, drained: bool = True) -> None:
    ask.session.server_changed(ServerReadiness(ready=True, drained=drained))


def test_until_the_models_for_the_start_are_loaded_it_says_which_are_awaited(ask: AppClient) -> None:
    ask.session.server_changed(ServerReadiness(ready=False, drained=False))
    ask.reports[GetReadiness] = ReadinessReport(ready=False, awaited=LOADING)
    answer = ask("GET", "/readyz")
    assert answer.status_code == 503
    assert answer.json == {
        "status": "not_ready",
        "reason": "not ready: big, small",
        "models": [
            {"model": "big", "state": "loading", "reason": "the engine exited with code 3"},
            {"model": "small", "state": "queued", "reason": ""},
        ],
    }
    assert ask("GET", "/health").status_code == 200, "requests are accepted, and load their models"
    ask.reports[GetReadiness] = ReadinessReport(ready=True)
    assert ask("GET", "/readyz").json == {"status": "ready", "reason": "", "models": []}


def test_a_ready_server_is_ready_without_a_question_and_while_its_supervisor_is_replaced(ask: AppClient) -> None:
    assert ask("GET", "/readyz").status_code == 200
    ask.session.supervisor_ended()
    assert ask("GET", "/readyz").status_code == 200
    assert not ask.asked(GetReadiness)


def test_a_probe_needs_no_key(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32)
    assert ask("GET", "/readyz").status_code == 200
    ask.reports[GetReadiness] = ReadinessReport(ready=True)
    assert ask("GET", "/readyz?model=big").status_code == 200


def test_one_model_is_asked_about_and_its_last_report_counts_while_no_supervisor_answers(ask: AppClient) -> None:
    ask.reports[GetReadiness] = ReadinessReport(ready=False, awaited=LOADING[:1])
    answer = ask("GET", "/readyz?model=big")
    assert (answer.status_code, answer.json["models"][0]["state"]) == (503, "loading")
    assert ask.asked(GetReadiness)[0].model == "big"
    ask.reports[GetReadiness] = ReadinessReport(ready=True)
    assert ask("GET", "/readyz?model=big").status_code == 200
    ask.session.supervisor_ended()
    assert ask("GET", "/readyz?model=big").status_code == 200
    assert len(ask.asked(GetReadiness)) == 2, "it was not asked again"


def test_the_last_report_about_a_model_counts_while_a_supervisor_hangs(ask: AppClient) -> None:
    ask.reports[GetReadiness] = ReadinessReport(ready=True)
    assert ask("GET", "/readyz?model=big").status_code == 200
    ask.reports[GetReadiness] = SeveralMessages()
    assert ask("GET", "/readyz?model=big").json["status"] == "ready"
    answer = ask("GET", "/readyz?model=small")
    assert (answer.status_code, answer.json["status"]) == (503, "supervisor_lost")


def test_an_unknown_model_is_404(ask: AppClient) -> None:
    ask.reports[GetReadiness] = Failure(Code.MODEL_NOT_FOUND, "Model nope not found", param="model")
    is_error(ask("GET", "/readyz?model=nope"), 404, "not_found")


def test_a_drained_server_refuses_inference_alone(ask: AppClient) -> None:
    drain(ask)
    for path, body in (
        ("/v1/chat/completions", INFERENCE),
        ("/v1/chat/completions", b"not even JSON"),
        ("/v1/responses", {"model": "tiny", "input": "hi"}),
        ("/api/generate", {"model": "tiny", "prompt": "hi"}),
        ("/v1/embeddings", {"model": "tiny", "input": "hi"}),
        ("/tokenize", {"content": "hi"}),
    ):
        answer = ask("POST", path, body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10"), path
        assert "drained" in answer.text, path
    assert not ask.asked(SubmitRequest)
    answer = ask("GET", "/readyz")
    assert (answer.status_code, answer.json["status"]) == (503, "drained")
    assert is_error(ask("GET", "/health"), 503, "overloaded")["error"]["code"] == "drained"
    assert ask("GET", "/live").status_code == 200
    ask.reports |= {GetHealth: HEALTH, LoadModel: Loaded("tiny", "c", "llamacpp"), GetDrain: DrainReport(True, 1, 2)}
    assert ask("GET", "/v1/health").status_code == 200
    assert ask("POST", "/v1/load", {"model": "tiny"}).status_code == 200
    assert ask("GET", "/internal/drain").json == {"drained": True, "running": 1, "queued": 2}
    drain(ask, drained=False)
    ask.answers["chat/completions"] = {"choices": []}
    assert ask("POST", "/v1/chat/completions", INFERENCE).status_code == 200


def test_it_stays_drained_while_its_supervisor_is_replaced(ask: AppClient) -> None:
    drain(ask)
    ask.session.supervisor_ended()
    refused = is_error(ask("POST", "/v1/chat/completions", INFERENCE), 503, "overloaded")
    assert refused["error"]["code"] == "drained"


@pytest.mark.parametrize(("path", "drained"), [("/internal/drain", True), ("/internal/undrain", False)])
def test_drain_and_undrain_are_for_administrators(tmp_path: Path, path: str, drained: bool) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32, admin_api_key="a" * 32)
    ask.reports[SetDrain] = DrainReport(drained, 3, 0)
    assert ask("POST", path).status_code == 401
    assert ask("POST", path, headers={"Authorization": f"Bearer {'k' * 32}"}).status_code == 403
    answer = ask("POST", path, headers={"Authorization": f"Bearer {'a' * 32}"})
    assert answer.json == {"drained": drained, "running": 3, "queued": 0}
    assert ask.asked(SetDrain)[0].drained is drained
