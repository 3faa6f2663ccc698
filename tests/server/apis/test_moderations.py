"""``moderations`` by the published package, with an engine that answers as a guard model does, and without any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines.generation.guards_texts import SURE
from tests.fake_engines.llama_server import program_by_model
from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import openai

GUARD, CHAT = "extra.tiny-chat", "extra.tiny-tale"
BOTH = SURE + SURE / 7


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    engine = program_by_model(tmp_path_factory.mktemp("engine"), {"tiny-chat": "guards_texts"})
    return start_module_server(
        "tiny-chat", "tiny-tale", llama_server=engine, llamacpp_backend="system", moderation_model=GUARD
    )


@pytest.fixture
def client(server: LemonbusServer) -> Iterator[openai.OpenAI]:
    with openai_client(server) as client:
        yield client


@pytest.mark.parametrize("model", [{}, {"model": "omni-moderation-latest"}, {"model": GUARD}])
def test_a_text(client: openai.OpenAI, model: Any) -> None:
    answer = client.moderations.create(input="unsafe:S1,S6", **model)
    assert answer.id.startswith("modr-")
    assert answer.model == GUARD
    (result,) = answer.results
    assert result.flagged
    assert result.categories.violence
    assert not result.categories.hate
    assert result.category_scores.violence == pytest.approx(SURE / BOTH)
    assert result.category_scores.hate == 0.0
    assert result.category_applied_input_types.violence == ["text"]
    assert result.category_applied_input_types.harassment == []
    assert result.to_dict()["hazards"] == [
        {"id": "S1", "name": "Violent Crimes"},
        {"id": "S6", "name": "Specialized Advice"},
    ]


def test_several_texts_are_judged_one_by_one_and_count_as_one_request(
    server: LemonbusServer, client: openai.OpenAI
) -> None:
    answer = client.moderations.create(input=["a cat", "unsafe:S10", "a dog"])
    assert [each.flagged for each in answer.results] == [False, True, False]
    assert answer.results[0].category_scores.hate == pytest.approx(SURE / 7 / BOTH)
    stats = server.client.get(f"/v1/stats?model={GUARD}").json()
    assert (stats["prompt_tokens"], stats["output_tokens"]) == (9, 2 + 4 + 2)


def test_parts_are_judged_together(client: openai.OpenAI) -> None:
    parts: Any = [{"type": "text", "text": "unsafe:"}, {"type": "text", "text": "a cat"}]
    assert [each.flagged for each in client.moderations.create(input=parts).results] == [False]
    parts[1]["text"] = "unsafe:S12"
    (result,) = client.moderations.create(input=parts).results
    assert result.categories.sexual


@pytest.mark.parametrize("wrong", [[], ["a", {"type": "text", "text": "b"}], [{"type": "audio"}], 3, ["a"] * 257, None])
def test_a_wrong_input_is_refused(server: LemonbusServer, wrong: Any) -> None:
    answer = server.client.post("/v1/moderations", {"input": wrong})
    assert answer.status == 400, answer
    assert "input" in answer.error["message"]


@pytest.mark.parametrize("body", [{"input": "a cat", "model": CHAT}, {"input": "chatty"}])
def test_a_model_that_gives_no_verdict_is_an_error(server: LemonbusServer, body: dict[str, str]) -> None:
    answer = server.client.post("/v1/moderations", body)
    assert (answer.status, answer.error["code"]) == (500, "backend_error"), answer
    assert "guard model" in answer.error["message"]


def test_without_a_guard_model_it_says_what_to_do(shared_server: LemonbusServer) -> None:
    for body in ({"input": "a cat"}, {"input": "a cat", "model": "omni-moderation-latest"}):
        answer = shared_server.client.post("/api/v1/moderations", body)
        assert (answer.status, answer.error["code"]) == (501, "unsupported_operation")
        assert "moderation_model" in answer.error["message"]
