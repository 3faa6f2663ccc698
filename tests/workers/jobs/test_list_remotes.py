"""The job that lists the models of other servers: what it takes of their answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from protocol.config.model_settings import RemoteSettings
from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS
from protocol.messages.remote_models import MAX_LABELS, MAX_MODELS, RemoteList, RemoteModel, StartRemoteListing
from workers.jobs.list_remotes import list_all, list_models, listed_models


def answer(*models: dict[str, object]) -> bytes:
    return json.dumps({"object": "list", "data": list(models)}).encode()


def test_names_and_labels_are_taken() -> None:
    listed = listed_models(
        answer({"id": "a", "object": "model"}, {"id": "b/c", "labels": ["vision"], "recipe": "llamacpp"})
    )
    assert listed == [RemoteModel("a"), RemoteModel("b/c", ["vision"])]
    assert msgspec.convert(msgspec.to_builtins(listed), list[RemoteModel]) == listed


def test_labels_that_cannot_be_labels_are_left_out() -> None:
    labels = ["tools", "\x1b[31mred", "x" * 65, "", *(str(number) for number in range(MAX_LABELS))]
    (listed,) = listed_models(answer({"id": "a", "labels": labels}))
    assert listed.labels[:2] == ["tools", "0"]
    assert len(listed.labels) == MAX_LABELS


@contextmanager
def answering(head: bytes, drip: bytes = b"", timeout: float | None = None) -> Iterator[RemoteSettings]:
    """Answer one request with these bytes, and then with ``drip`` again and again."""
    over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(head)
            for _ in range(200 if drip else 0):
                connection.sendall(drip)
                if over.wait(0.05):
                    break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield RemoteSettings(url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=timeout)
        over.set()
        thread.join()


@pytest.mark.parametrize("slow", [b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_server_whose_list_does_not_end_does_not_cost_the_lists_of_others(slow: bytes) -> None:
    body = answer({"id": "a"})
    good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with answering(slow, drip=b" ", timeout=0.5) as endless, answering(good) as quick:
        settings = Settings(remotes={"endless": endless, "quick": quick})
        arrived: list[RemoteList] = []
        listed = list_all(settings, StartRemoteListing(["endless", "quick"]), arrived.append)
        assert arrived == [RemoteList("quick", [RemoteModel("a")])], "before the endless one ends with its server"
    assert listed.complete
    assert listed.lists == [
        RemoteList("endless", problem="it has not sent its list within 0.5 s"),
        RemoteList("quick", [RemoteModel("a")]),
    ]


def test_what_the_other_server_has_from_elsewhere_is_left_out() -> None:
    assert listed_models(answer({"id": "gpu2/a", "recipe": "remote"}, {"id": "a"})) == [RemoteModel("a")]


def test_names_that_cannot_be_names_are_left_out_and_long_lists_are_cut() -> None:
    assert listed_models(answer({"id": ""}, {"id": "x" * 201}, {"id": "a\nb"})) == []
    assert len(listed_models(answer(*({"id": str(number)} for number in range(MAX_MODELS + 5))))) == MAX_MODELS


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data": 3}', b'{"data": [{}]}', b"<html>", b"\xff"])
def test_anything_else_is_an_error(body: bytes) -> None:
    with pytest.raises(DECODE_ERRORS):
        listed_models(body)


@pytest.mark.parametrize(
    "content", [b"SEKRET\nsecond", b"SEKRET\tx", b"SEKRET\xff", "SEKRET\u00e4".encode(), b"", b" \n", None]
)
def test_a_key_that_is_not_one_is_neither_sent_nor_told(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        listed = list_models("gpu", RemoteSettings(url=url, api_key_file=str(file), timeout=60))
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert listed.problem == "the file with its key is missing, empty or not readable"


@pytest.mark.parametrize("value", [None, "", "SEKRET\nsecond"])
def test_a_variable_without_a_key_is_a_problem(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("KEY_OF_A_TEST", raising=False)
    if value is not None:
        monkeypatch.setenv("KEY_OF_A_TEST", value)
    listed = list_models("gpu", RemoteSettings(url="http://127.0.0.1:1/v1", api_key_env="KEY_OF_A_TEST", timeout=60))
    assert listed.problem == "the variable with its key is missing, empty or not readable"


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b""]
)
def test_what_is_not_http_is_a_problem_of_this_server_alone(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                connection.recv(65536)
                connection.sendall(answer)

        listener.settimeout(60)
        server = threading.Thread(target=serve)
        server.start()
        listed = list_models("gpu", RemoteSettings(url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=60))
        server.join(60)
    assert listed.problem.startswith("it ")
    assert not listed.models


def test_a_host_that_cannot_be_looked_up_is_a_problem() -> None:
    assert list_models("gpu", RemoteSettings(url=f"http://{'a' * 70}/v1")).problem
