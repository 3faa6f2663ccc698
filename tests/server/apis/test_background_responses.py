"""Background responses through the unmodified ``openai`` package: polled, streamed, cancelled and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support import processes
from tests.support.clients.openai_client import openai_client
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import openai

LOOP = "extra.tiny-loop"
ENDLESS = 8000
"""Tokens of a response that is stopped before all of them are generated."""


@pytest.fixture
def client(shared_server: LemonbusServer) -> Iterator[openai.OpenAI]:
    with openai_client(shared_server) as made:
        yield made


def test_the_background(client: openai.OpenAI) -> None:
    import openai  # noqa: PLC0415 - it takes a second to import

    begun = client.responses.create(model=LOOP, input="hi", background=True, max_output_tokens=20)
    assert begun.status == "in_progress"
    wait_for(lambda: client.responses.retrieve(begun.id).status != "in_progress", "it ended")
    ended = client.responses.retrieve(begun.id)
    assert (ended.status, ended.output_text, ended.background) == ("incomplete", CHAT_TEXT, True)
    assert client.responses.cancel(begun.id).status == "incomplete", "an end does not change"

    whole = client.responses.create(model=LOOP, input="hi", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(whole.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.create(model="no-such-model", input="hi", background=True)
    schema = {"enum": [f"v{i}" for i in range(10_000)]}
    with pytest.raises(openai.BadRequestError, match="10000 alternatives"):
        client.responses.create(
            model=LOOP,
            input="hi",
            background=True,
            text={"format": {"type": "json_schema", "name": "a", "schema": schema}},
        )
    with pytest.raises(openai.BadRequestError, match="does not serve"):
        client.responses.create(model="extra.tiny-embed", input="hi", background=True, stream=True)


def test_a_streamed_response_in_the_background(client: openai.OpenAI) -> None:
    asked: Any = {"model": LOOP, "input": "hi", "background": True, "max_output_tokens": 20}
    events = list(client.responses.create(**asked, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.incomplete"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last: Any = events[-1]
    stored = client.responses.retrieve(last.response.id)
    assert (stored.output_text, stored.status, stored.background) == (CHAT_TEXT, "incomplete", True)
    assert stored == last.response
    plain = list(client.responses.create(model=LOOP, input="hi", max_output_tokens=20, stream=True))
    assert kinds == [event.type for event in plain]

    failed = list(client.responses.create(**{**asked, "input": "hi " * 100_000}, stream=True))
    assert failed[-1].type == "response.failed"
    assert failed[-1].response.error is not None
    assert failed[-1].response.error.code == "context_length_exceeded"


def test_a_streamed_response_in_the_background_goes_on_without_its_client(
    shared_server: LemonbusServer, client: openai.OpenAI
) -> None:
    stream = client.responses.create(model=LOOP, input="hi", background=True, max_output_tokens=600, stream=True)
    created: Any = next(iter(stream))
    stream.close()
    wait_for(lambda: client.responses.retrieve(created.response.id).status != "in_progress", "it ended", 20)
    ended = client.responses.retrieve(created.response.id)
    assert ended.status == "incomplete"
    assert ended.usage is not None
    assert ended.usage.output_tokens == 600


@pytest.fixture(scope="module")
def slow_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """A server whose engine takes minutes for :data:`ENDLESS` tokens, with one gateway process, which runs all responses."""
    engine = program(tmp_path_factory.mktemp("engine"), "slow_generation")
    return start_module_server("tiny-loop", llama_server=engine, llamacpp_backend="system", gateway_workers=1)


@pytest.fixture
def slow_client(slow_server: LemonbusServer) -> Iterator[openai.OpenAI]:
    with openai_client(slow_server) as made:
        yield made


def test_a_streamed_response_in_the_background_is_cancelled(
    slow_server: LemonbusServer, slow_client: openai.OpenAI
) -> None:
    stream = slow_client.responses.create(
        model=LOOP, input="hi", background=True, max_output_tokens=ENDLESS, stream=True
    )
    kinds = []
    for event in stream:
        if not kinds:
            created: Any = event
        kinds.append(event.type)
        if len(kinds) == 6:
            assert slow_client.responses.cancel(created.response.id).status == "cancelled"
    assert kinds[-1] == "response.failed"
    assert slow_client.responses.retrieve(created.response.id).status == "cancelled"
    wait_for(lambda: slow_server.busy_slots(LOOP) == 0, "its engine stopped")


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_a_background_response_is_stopped(shared_server: LemonbusServer, client: openai.OpenAI, action: str) -> None:
    client.responses.create(model=LOOP, input="hi", max_output_tokens=1)  # loads the model
    shared_server.assert_idle()
    with processes.stopped(shared_server.engine_pid(LOOP)):  # it does not end before it is cancelled
        begun = client.responses.create(model=LOOP, input="hi", background=True, max_output_tokens=ENDLESS)
        wait_for(lambda: shared_server.state()["granted"] == 1, "its engine has got it")
        if action == "cancel":
            assert client.responses.cancel(begun.id).status == "cancelled"
            assert client.responses.retrieve(begun.id).status == "cancelled"
        else:
            client.responses.delete(begun.id)
    shared_server.assert_idle()


def test_the_stream_of_a_response_in_the_background_is_resumed(
    shared_server: LemonbusServer, client: openai.OpenAI
) -> None:
    import openai  # noqa: PLC0415 - it takes a second to import

    stream = client.responses.create(model=LOOP, input="hi", background=True, max_output_tokens=600, stream=True)
    seen: list[Any] = []
    for event in stream:
        seen.append(event)
        if len(seen) == 40:
            break
    stream.close()
    response_id = seen[0].response.id
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number))
    numbers = [event.sequence_number for event in [*seen, *rest]]
    assert numbers == list(range(len(numbers)))
    assert rest[-1].type == "response.incomplete"
    deltas = [event.delta for event in [*seen, *rest] if event.type == "response.output_text.delta"]
    ended = client.responses.retrieve(response_id)
    assert "".join(deltas) == ended.output_text == rest[-1].response.output_text

    # It has ended: every gateway process can stream it, whole or in part, and more than once.
    for _ in range(4):
        again = list(client.responses.retrieve(response_id, stream=True))
        assert [event.model_dump() for event in again] == [event.model_dump() for event in [*seen, *rest]]
    last = numbers[-1]
    assert len(list(client.responses.retrieve(response_id, stream=True, starting_after=last - 1))) == 1
    assert not list(client.responses.retrieve(response_id, stream=True, starting_after=last))

    plain = client.responses.create(model=LOOP, input="hi", background=True, max_output_tokens=2)
    with pytest.raises(openai.BadRequestError, match="requested as a stream"):
        client.responses.retrieve(plain.id, stream=True)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_0", stream=True)


def test_a_cancelled_response_ends_its_resumed_stream(slow_client: openai.OpenAI) -> None:
    asked: Any = {"model": LOOP, "input": "hi", "background": True, "max_output_tokens": ENDLESS}
    stream = slow_client.responses.create(**asked, stream=True)
    created: Any = next(iter(stream))
    stream.close()
    resumed: Any = slow_client.responses.retrieve(created.response.id, stream=True, starting_after=0)
    events = []
    for event in resumed:
        events.append(event)
        if len(events) == 1:
            assert slow_client.responses.cancel(created.response.id).status == "cancelled"
    assert events[-1].type == "response.failed"
    assert [event.sequence_number for event in events] == list(range(1, len(events) + 1))
