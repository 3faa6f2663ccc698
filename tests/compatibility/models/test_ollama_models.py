"""The unmodified ``ollama`` client manages the models of a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compatibility.hub_server import HubServer, cached
from tests.support.clients.deferred_packages import ollama
from tests.support.fakes.hub import Hub
from tests.support.server import LemonbusServer

LLAMA = "llama3.2:1b"


@pytest.fixture
def client(server: LemonbusServer) -> Iterator[ollama.Client]:
    client = ollama.Client(f"http://127.0.0.1:{server.port}")
    yield client
    client._client.close()


def names(client: ollama.Client) -> list[str]:
    return [str(model.model) for model in client.list().models]


def test_a_model_is_pulled_shown_copied_and_deleted(client: ollama.Client, hub_server: HubServer) -> None:
    steps = list(client.pull(LLAMA, stream=True))
    assert steps[-1].status == "success"
    assert any(step.completed and step.total for step in steps)
    assert client.pull(LLAMA).status == "success", "it is here already"
    assert LLAMA in names(client)

    shown = client.show(LLAMA)
    assert shown.capabilities == ["completion"]
    assert shown.details is not None
    assert (shown.details.format, shown.details.family) == ("gguf", "llama")
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["general.parameter_count"] > 0
    assert shown.template
    assert shown.modified_at is not None

    assert client.copy(LLAMA, "gpt-3.5-turbo").status == "success"
    assert {LLAMA, "gpt-3.5-turbo:latest"} <= set(names(client))
    digests = {str(model.model): model.digest for model in client.list().models}
    assert digests[LLAMA] == digests["gpt-3.5-turbo:latest"]
    assert client.generate("gpt-3.5-turbo", "Hi", options={"num_predict": 1}).done
    (running,) = client.ps().models
    assert (running.model, running.context_length) == (LLAMA, 8192)
    assert running.expires_at is not None

    with pytest.raises(ollama.ResponseError) as raised:
        client.delete(LLAMA)
    assert raised.value.status_code == 409, "a copy uses its files"
    assert client.delete("gpt-3.5-turbo").status == "success"
    assert LLAMA in names(client)
    assert client.delete(LLAMA).status == "success"
    assert LLAMA not in names(client)
    assert cached(hub_server.folder) == set()
    assert client.ps().models == []


def test_a_checkpoint_of_the_hub(client: ollama.Client) -> None:
    name = "hf.co/shop/Ours-GGUF:Q4_K_M"
    assert client.pull(name).status == "success"
    assert client.show(name).capabilities == ["completion"]
    assert client.chat(name, [{"role": "user", "content": "Hi"}], options={"num_predict": 1}).done
    assert client.delete(name).status == "success"


def test_errors_are_the_clients_exceptions(client: ollama.Client, hub: Hub) -> None:
    for method in (client.show, client.delete, client.pull):
        with pytest.raises(ollama.ResponseError, match="not found") as raised:
            method("unknown-model")
        assert raised.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as raised:
        client.copy("unknown-model", "x")
    assert raised.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as raised:
        client.copy("extra.tiny-chat", LLAMA)
    assert raised.value.status_code == 409
    with pytest.raises(ollama.ResponseError) as raised:
        client.create("x", from_="extra.tiny-chat")
    assert raised.value.status_code == 501
    assert not hub.transfers


def test_a_known_model_that_is_not_here_is_not_found(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="not downloaded") as raised:
        client.show("qwen3:0.6b")
    assert raised.value.status_code == 404
