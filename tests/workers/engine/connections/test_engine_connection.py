"""One connection to an engine: how each kind of response ends, with real sockets."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from protocol.runtime.loop import Loop
from tests.support.descriptors import no_descriptors
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.engine.connections.exchange import BufferedResponse
from workers.engine.connections.response_reader import MAX_HEAD_BYTES

DEADLINE = 5.0
REQUEST = EngineRequest("POST", "/v1/rerank", b"{}")
STREAMED_REQUEST = EngineRequest("POST", "/v1/completions", b"{}", streamed=True)
WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\nhello"


class RecordingHandler:
    """Records a response, and calls ``on_end`` when it has ended."""

    def __init__(self, error: Exception | None = None, on_end: Callable[[], object] = lambda: None) -> None:
        self.error, self.on_end = error, on_end
        self.body = b""
        self.ends: list[str] = []
        self.trailers: list[tuple[bytes, bytes]] = []

    def began(self, status: int) -> None:
        assert status == 200

    def data(self, piece: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.body += piece

    def trailer(self, name: bytes, value: bytes) -> None:
        self.trailers.append((name, value))

    def restart(self) -> bool:
        raise AssertionError

    def ended(self, until_close: bool = False) -> None:
        self.ends.append("ended until close" if until_close else "ended")
        self.on_end()

    def broke(self, reason: str) -> None:
        assert reason
        self.ends.append("broke")

    def malformed(self, reason: str) -> None:
        assert reason
        self.ends.append("malformed")

    def crashed(self, error: BaseException) -> None:
        assert error is self.error
        self.ends.append("crashed")


class FakeEngine:
    """A listening socket, and a pool of connections to it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.pool = EngineConnectionPool(self.loop, self.listener.getsockname()[1], 2)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            self.loop.run_once(0.01)

    def accept(self) -> socket.socket:
        self.until(lambda: is_readable(self.listener))
        connection, _ = self.listener.accept()
        self.until(lambda: is_readable(connection))
        assert connection.recv(65536)
        return connection

    def answer(self, response: bytes, handler: RecordingHandler) -> None:
        """Send a request, answer it with these bytes, close the connection, and wait for the end of the response."""
        self.pool.send(REQUEST, handler)
        with self.accept() as connection:
            connection.sendall(response)
        self.until(lambda: handler.ends)

    def close_kept_connection(self) -> None:
        """Answer a request whose connection is kept, and close that connection."""
        handler = RecordingHandler()
        self.pool.send(REQUEST, handler)
        with self.accept() as connection:
            connection.sendall(WITH_LENGTH)
            self.until(lambda: handler.ends)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine()
    yield engine
    engine.pool.close()
    engine.listener.close()
    engine.loop.close()


@pytest.mark.parametrize(
    ("response", "body", "end"),
    [
        (WITH_LENGTH, b"hello", "ended"),
        (CHUNKED, b"hello", "ended"),
        (UNTIL_CLOSE, b"hello", "ended until close"),
        (UNTIL_CLOSE.replace(b"1.0", b"1.1"), b"hello", "ended until close"),
        (WITH_LENGTH[:-1], b"hell", "broke"),
        (CHUNKED[:-5], b"hello", "broke"),
        (UNTIL_CLOSE[:30], b"", "broke"),
        (b"", b"", "broke"),
        (b"\x00\xff no HTTP \r\n\r\n", b"", "malformed"),
        (CHUNKED.replace(b"5\r", b"z\r"), b"", "malformed"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WITH_LENGTH, b"hello", "ended"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"", "broke"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", b"", "malformed"),
    ],
)
def test_ends(engine: FakeEngine, response: bytes, body: bytes, end: str) -> None:
    handler = RecordingHandler()
    engine.answer(response, handler)
    assert (handler.body, handler.ends) == (body, [end])
    assert engine.loop.errors == 0


@pytest.mark.parametrize("line", [b"X-More: 1\r\n", b"x" * 11], ids=["many headers", "a long one"])
def test_a_head_that_does_not_end_is_not_read_on(engine: FakeEngine, line: bytes) -> None:
    handler = RecordingHandler()
    engine.pool.send(REQUEST, handler)
    with engine.accept() as connection:
        connection.setblocking(False)
        head = memoryview(b"HTTP/1.1 200 OK\r\nX: " + line * (2 * MAX_HEAD_BYTES // len(line)))

        def send_more() -> list[str]:
            nonlocal head
            with contextlib.suppress(BlockingIOError, ConnectionError):
                head = head[connection.send(head) :]
            return handler.ends

        engine.until(send_more)
    assert handler.ends == ["malformed"]
    assert engine.loop.errors == 0


def test_a_collected_response_is_bounded(engine: FakeEngine) -> None:
    answers: list[tuple[int, bytes]] = []
    engine.pool.send(REQUEST, BufferedResponse(lambda status, body: answers.append((status, body))))
    with engine.accept() as connection:
        connection.setblocking(False)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")

        def send_more() -> object:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                connection.send(bytes(65536))
            return answers

        engine.until(send_more)
    [(status, reason)] = answers
    assert (status, engine.loop.errors) == (0, 0)
    assert b"more than" in reason


def test_an_error_of_our_own_is_not_taken_for_bad_http(engine: FakeEngine) -> None:
    handler = RecordingHandler(RuntimeError("a bug"))
    engine.answer(WITH_LENGTH, handler)
    assert handler.ends == ["crashed"]
    assert engine.loop.errors == 0


def is_readable(connection: socket.socket, patience: float = 0.0) -> bool:
    return bool(select.select([connection], [], [], patience)[0])


def is_closed(connection: socket.socket, patience: float = 0.0) -> bool:
    """Return whether the other side has closed the connection, or does in time."""
    return is_readable(connection, patience) and connection.recv(1) == b""


def test_after_a_stream_the_connection_is_replaced_once_the_answer_has_left(engine: FakeEngine) -> None:
    handler = RecordingHandler()
    closed_before_answer: list[bool] = []
    engine.pool.send(STREAMED_REQUEST, handler)
    with engine.accept() as connection:
        engine.loop.after_each_iteration(lambda: closed_before_answer.append(is_closed(connection)))
        connection.sendall(CHUNKED)
        engine.until(lambda: handler.ends)
        assert not any(closed_before_answer)
        assert is_closed(connection, DEADLINE), "in the same iteration of the loop"
    assert is_readable(engine.listener, DEADLINE), "a connection for the next request was opened in it too"


def test_a_pool_that_closes_at_the_end_of_a_stream_opens_no_connection(engine: FakeEngine) -> None:
    handler = RecordingHandler(on_end=engine.pool.close)
    engine.pool.send(STREAMED_REQUEST, handler)
    with engine.accept() as connection:
        connection.sendall(CHUNKED)
        engine.until(lambda: handler.ends)
        assert is_closed(connection, DEADLINE)
    with socket.create_connection(engine.listener.getsockname(), DEADLINE) as next_one:
        accepted, address = engine.listener.accept()
        accepted.close()
        assert address == next_one.getsockname(), "the first connection since is this one"


def test_a_request_on_a_kept_connection_that_closes_is_sent_again(engine: FakeEngine) -> None:
    second = RecordingHandler()
    engine.close_kept_connection()
    engine.pool.send(REQUEST, second)
    with engine.accept() as connection:
        connection.sendall(WITH_LENGTH)
        engine.until(lambda: second.ends)
    assert second.ends == ["ended"]


def test_without_descriptors_a_request_breaks_from_the_loop_and_the_next_one_is_served(engine: FakeEngine) -> None:
    broken, served = RecordingHandler(), RecordingHandler()
    with no_descriptors():
        engine.pool.send(REQUEST, broken)
        assert broken.ends == [], "not from inside the caller's own call"
        engine.until(lambda: broken.ends)
    assert broken.ends == ["broke"]
    assert engine.loop.errors == 0
    engine.answer(WITH_LENGTH, served)
    assert (served.body, served.ends) == (b"hello", ["ended"])


@pytest.mark.parametrize("closed", ["by its request", "with the pool"])
def test_a_request_that_is_cancelled_before_it_breaks_is_told_of_nothing(engine: FakeEngine, closed: str) -> None:
    handler = RecordingHandler()
    with no_descriptors():
        exchange = engine.pool.send(REQUEST, handler)
    (exchange.cancel if closed == "by its request" else engine.pool.close)()
    engine.loop.run_once(0.01)
    assert handler.ends == []


def test_without_descriptors_no_connection_is_opened_ahead(engine: FakeEngine) -> None:
    served = RecordingHandler()
    with no_descriptors():
        engine.pool.connect_ahead()
    engine.answer(WITH_LENGTH, served)
    assert served.ends == ["ended"]


def test_without_descriptors_a_kept_connection_that_closes_breaks_its_request(engine: FakeEngine) -> None:
    second = RecordingHandler()
    engine.close_kept_connection()
    with no_descriptors():
        engine.pool.send(REQUEST, second)
        engine.until(lambda: second.ends)
    assert second.ends == ["broke"]
    assert engine.loop.errors == 0


def test_a_header_after_the_last_chunk_is_passed_on(engine: FakeEngine) -> None:
    handler = RecordingHandler()
    engine.answer(CHUNKED.replace(b"0\r\n\r\n", b"0\r\nX-Usage: {}\r\n\r\n"), handler)
    assert (handler.body, handler.ends, handler.trailers) == (b"hello", ["ended"], [(b"x-usage", b"{}")])


def test_a_chunked_response_without_its_end_is_broken(engine: FakeEngine) -> None:
    handler = RecordingHandler()
    engine.answer(CHUNKED.removesuffix(b"0\r\n\r\n"), handler)
    assert (handler.body, handler.ends) == (b"hello", ["broke"])
