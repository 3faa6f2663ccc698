"""Files through the unmodified ``openai`` package: uploads, lists, contents, who sees what, and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import openai

ADMIN, KEY = "adm1n", "cl1ent"
LIMIT = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    # Less memory for bodies than a file has: it is not held there.
    return start_module_server(
        "tiny-chat",
        api_key=KEY,
        admin_api_key=ADMIN,
        file_bytes=LIMIT,
        files_bytes_of_key=2 * LIMIT,
        body_limit=64 * 1024,
        body_memory=1024 * 1024,
    )


def client_of(server: LemonbusServer, key: str) -> openai.OpenAI:
    import openai  # noqa: PLC0415 - it takes a second to import

    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0, timeout=30)


@pytest.fixture
def client(server: LemonbusServer) -> Iterator[openai.OpenAI]:
    with client_of(server, KEY) as made:
        yield made
        for file in made.files.list():
            made.files.delete(file.id)


def test_the_life_of_a_file(server: LemonbusServer, client: openai.OpenAI) -> None:
    import openai  # noqa: PLC0415 - it takes a second to import

    content = b'{"custom_id":"1"}\n' * (LIMIT // 18)
    made = client.files.create(file=("requests.jsonl", content), purpose="batch")
    assert (made.object, made.bytes, made.filename, made.purpose) == ("file", len(content), "requests.jsonl", "batch")
    assert made.expires_at == made.created_at + 30 * 86_400
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == content
    brief = client.files.create(file=b"{}", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert brief.expires_at == brief.created_at + 3600
    assert {each.id for each in client.files.list()} == {made.id, brief.id}
    assert [each.id for each in client.files.list(limit=1, order="asc")] == [made.id, brief.id], "page by page"
    assert list(client.files.list(purpose="batch_output")) == []
    with client_of(server, ADMIN) as admin:
        own = admin.files.create(file=b"{}", purpose="batch")
        assert {each.id for each in admin.files.list()} == {made.id, brief.id, own.id}
        with pytest.raises(openai.NotFoundError):
            client.files.content(own.id)
        with pytest.raises(openai.NotFoundError):
            client.files.delete(own.id)
        assert admin.files.delete(own.id).deleted
    assert client.files.delete(made.id).deleted
    for gone in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            gone(made.id)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve("..%2f..%2fkeys.json")


def test_refused_uploads(server: LemonbusServer, client: openai.OpenAI) -> None:
    import openai  # noqa: PLC0415 - it takes a second to import

    with pytest.raises(openai.APIStatusError, match="a file may have") as too_large:
        client.files.create(file=b"x" * (LIMIT + 1), purpose="batch")
    assert too_large.value.status_code == 413
    with pytest.raises(openai.BadRequestError, match="`purpose` must be batch: no route here uses files for vision"):
        client.files.create(file=b"x", purpose="vision")
    with pytest.raises(openai.BadRequestError, match="3600"):
        client.files.create(file=b"x", purpose="batch", expires_after={"anchor": "created_at", "seconds": 1})
    for _ in range(2):
        client.files.create(file=b"x" * LIMIT, purpose="batch")
    with pytest.raises(openai.APIStatusError, match="your files use the space") as full:
        client.files.create(file=b"x", purpose="batch")
    assert full.value.status_code == 413
    folder = server.home / "state" / "files"
    assert len(list(folder.iterdir())) == 4, "nothing is left of what was refused"
