"""The command line's calls of declared routes: where fields are sent, and answers that are not the declared ones."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from gateway.api.common.routes import HttpCaller, route
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from tests.gateway.fake_server import FakeServer, Reply


class WantedItem(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1)]
    count: int | None = None


class FoundItem(msgspec.Struct):
    name: str


@route("POST", "items")
def add(_caller: HttpCaller, wanted: WantedItem) -> FoundItem:
    """Adds an item."""
    return FoundItem(wanted.name)


@route("GET", "/toy/items")
def find(_caller: HttpCaller, wanted: WantedItem) -> FoundItem:
    """Finds an item."""
    return FoundItem(wanted.name)


@route("DELETE", "/toy/items/{name}")
def remove(_caller: HttpCaller, wanted: WantedItem) -> FoundItem:
    """Removes an item."""
    return FoundItem(wanted.name)


@route("GET", "items/{name:path}")
def show(_caller: HttpCaller, wanted: WantedItem) -> FoundItem:
    """Shows an item. Its name may have slashes."""
    return FoundItem(wanted.name)


def test_fields_are_sent_where_the_route_reads_them(server: FakeServer) -> None:
    client = ApiClient(server.url)
    answer = Reply({"name": "a/b c", "of_a_later_release": 1})
    server.replies["POST", "/v1/items"] = answer
    assert client.ask(add, WantedItem("a/b c")).name == "a/b c"
    assert server.last() == {"name": "a/b c"}
    client.ask(add, WantedItem("a", 2), more={"ctx_size": 512})
    assert server.last() == {"name": "a", "count": 2, "ctx_size": 512}
    server.replies["GET", "/toy/items?name=a/b+c&count=2"] = answer
    assert client.ask(find, WantedItem("a/b c", 2)).name == "a/b c"
    server.replies["DELETE", "/toy/items/a%2Fb%20c"] = answer
    assert client.ask(remove, WantedItem("a/b c")).name == "a/b c"


@pytest.mark.parametrize("answer", [{}, {"name": 1}, []])
def test_an_answer_of_another_form_is_an_error(server: FakeServer, answer: object) -> None:
    server.replies["POST", "/v1/items"] = Reply(answer)
    with pytest.raises(CommandError, match="answered in an unexpected form; is it another release of lemonbus"):
        ApiClient(server.url).ask(add, WantedItem("a"))
