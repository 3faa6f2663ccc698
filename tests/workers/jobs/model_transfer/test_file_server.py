"""The HTTP server of model files: what it sends, to whom, and what it does not know."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from protocol.messages.model_transfer import TransferFile
from tests.support.waiting import wait_for
from tests.workers.jobs.transfer_files import HOST, KEY, ask, content, serving, shared, transfer_file, written
from workers.jobs.model_transfer import file_server
from workers.jobs.model_transfer.file_server import MAX_STRANGERS, MAX_TRANSFERS, FileServer

DATA = content(100_003)


@pytest.fixture
def file(tmp_path: Path) -> TransferFile:
    return transfer_file(written(tmp_path / "models" / "m.gguf", DATA))


@pytest.fixture
def server(tmp_path: Path, file: TransferFile) -> Iterator[FileServer]:
    server = FileServer(HOST, KEY)
    server.files = {file.id: shared(file)}
    with serving(server):
        yield server


RANGES = [
    pytest.param({}, 200, DATA, None, id="whole"),
    pytest.param({"Range": "bytes=0-"}, 206, DATA, "bytes 0-100002/100003", id="from the beginning"),
    pytest.param({"Range": "bytes=100000-"}, 206, DATA[-3:], "bytes 100000-100002/100003", id="the rest"),
    pytest.param({"Range": "bytes=100003-"}, 416, b"", None, id="beyond"),
    pytest.param({"Range": "bytes=1-2"}, 416, b"", None, id="a part in the middle"),
    pytest.param({"Range": "bytes=-5"}, 416, b"", None, id="the last bytes"),
    pytest.param({"Range": "bytes=0-,5-"}, 416, b"", None, id="two parts"),
]


@pytest.mark.parametrize(("headers", "status", "body", "range_"), RANGES)
def test_a_file_or_its_rest(
    server: FileServer, file: TransferFile, headers: dict[str, str], status: int, body: bytes, range_: str | None
) -> None:
    got = ask(server.address, f"/files/{file.id}", **headers)
    assert got[:2] == (status, body)
    assert got[2]["Content-Range"] == range_


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", f"Bearer {KEY}x", f"Basic {KEY}", KEY, "Bearer é"])
def test_without_the_key_nothing_is_known(server: FileServer, file: TransferFile, header: str) -> None:
    for path in (f"/files/{file.id}", "/", "/files/" + 32 * "0"):
        assert ask(server.address, path, Authorization=header)[:2] == (401, b""), path


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/files",
        "/files/",
        "/digests/ID",
        "/files/" + 32 * "0",
        "/files/../../etc/passwd",
        "/files/%2e%2e/%2e%2e/etc/passwd",
        "/files/ID/",
        "/files/ID?x=1",
        "/files/PATH",
        "PATH",
        "http://127.0.0.1/files/ID",
    ],
)
def test_only_ids_are_known(server: FileServer, file: TransferFile, path: str) -> None:
    asked = path.replace("ID", file.id).replace("PATH", file.path)
    assert ask(server.address, asked)[:2] == (404, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "PROPFIND"])
def test_files_are_only_read(server: FileServer, file: TransferFile, method: str) -> None:
    assert ask(server.address, f"/files/{file.id}", method=method)[0] == 501
    assert Path(file.path).read_bytes() == DATA


def longer(path: Path) -> None:
    written(path, DATA + b"x")


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_another(path: Path) -> None:
    path.unlink()
    path.symlink_to(written(path.parent / "secret", b"secret"))


@pytest.mark.parametrize("change", [longer, touched, Path.unlink, pipe, folder, link_to_another])
def test_another_file_under_the_same_path_is_not_sent(
    server: FileServer, file: TransferFile, change: Callable[[Path], None]
) -> None:
    change(Path(file.path))
    assert ask(server.address, f"/files/{file.id}")[:2] == (410, b"")


def test_a_later_list_of_files_replaces_the_former(server: FileServer, file: TransferFile, tmp_path: Path) -> None:
    other = transfer_file(written(tmp_path / "empty", b""))
    server.files = {other.id: shared(other)}
    assert ask(server.address, f"/files/{file.id}")[0] == 404
    assert ask(server.address, f"/files/{other.id}")[:2] == (200, b"")


@contextmanager
def connections(server: FileServer, number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections that send this, and nothing else."""
    host, _, port = server.address.rpartition(":")
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection((host, int(port)), 10)) for _ in range(number)]
        for each in opened:
            each.sendall(sent)
        yield opened


def ended(connection: socket.socket) -> bool:
    """Return whether the server has closed a connection."""
    connection.settimeout(0)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET /files/0 HTTP/1.1\r\nAuthorization: "], ids=["silent", "half a request"])
def test_connections_without_the_key_block_none_that_has_it(
    server: FileServer, file: TransferFile, sent: bytes
) -> None:
    with connections(server, 3 * MAX_STRANGERS, sent) as held:
        assert ask(server.address, f"/files/{file.id}")[:2] == (200, DATA)
        wait_for(lambda: all(map(ended, held[:MAX_STRANGERS])), "the oldest are closed")


def test_a_connection_that_sends_its_request_slowly_is_closed(
    monkeypatch: pytest.MonkeyPatch, server: FileServer
) -> None:
    monkeypatch.setattr(file_server, "KEY_S", 0.2)
    with connections(server, 1, b"GET ") as (slow,):

        def closed() -> bool:
            with suppress(ConnectionError):
                slow.send(b"x")
            return ended(slow)

        wait_for(closed, "it is closed, though it is not silent")


def test_transfers_are_bounded(server: FileServer, file: TransferFile, tmp_path: Path) -> None:
    large = transfer_file(written(tmp_path / "large", bytes(16_000_000)))
    server.files = {file.id: shared(file), large.id: shared(large)}
    request = f"GET /files/{large.id} HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    with connections(server, MAX_TRANSFERS, request.encode()) as held:
        for each in held:
            assert each.recv(9) == b"HTTP/1.1 "  # its transfer has begun, and waits for this end
        assert ask(server.address, f"/files/{file.id}")[0] == 503
    wait_for(lambda: ask(server.address, f"/files/{file.id}")[0] == 200, "the others have gone")


def test_it_listens_on_its_address_alone(tmp_path: Path) -> None:
    with serving(FileServer("127.0.0.3", KEY)) as server:
        host, _, port = server.address.rpartition(":")
        assert host == "127.0.0.3"
        assert ask(server.address, "/")[0] == 404
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, int(port)), 10)
