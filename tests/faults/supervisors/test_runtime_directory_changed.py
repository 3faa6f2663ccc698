"""Sockets or the whole runtime directory of a running server are deleted: it says so in one line, and ends with 1."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer

CHAT = "extra.tiny-chat"


def worker_socket(server: LemonbusServer) -> Path:
    return next(server.runtime.glob("w-*"))


def whole_directory(server: LemonbusServer) -> Path:
    return server.runtime


def delete(path: Path) -> None:
    """Delete a file, or a directory in a single step, so that nothing can be added under its name meanwhile. Otherwise

    a process that binds a socket while the content is being deleted would keep the directory.
    """
    if path.is_dir():
        shutil.rmtree(path.rename(path.with_name("deleted")))
    else:
        path.unlink()


@pytest.mark.parametrize("deleted", [worker_socket, whole_directory])
def test_a_server_whose_sockets_are_deleted_ends_with_1(start_server: StartServer, deleted: object) -> None:
    server = start_server("tiny-chat", load=[CHAT], gateway_workers=1)
    server.wait_loaded(CHAT)
    stream = server.client.start_chat(CHAT, stream=True)
    path: Path = deleted(server)  # type: ignore[operator]
    delete(path)
    assert stream.finish().done, "what runs may end"
    assert server.wait_exit(20) == 1
    (line,) = [line for line in server.lines if line["level"] == "critical"]
    assert line["event"].startswith("the runtime directory was changed by something else")
    assert line["missing"].startswith(str(path))
    server.expect_exit_code(1)
