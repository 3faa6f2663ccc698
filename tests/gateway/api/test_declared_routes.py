"""A declared route: the source of its request, refusals, answers, and its part of the document."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from gateway.access.scopes import Scope, needed_scope
from gateway.api.common.dialect import VERSION_PREFIXES, Dialect, Routes
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.common.routes import Content, HttpCaller, Nothing, route
from gateway.bus.session import SupervisorSession
from protocol.failures import Code, Failure
from protocol.messages.models import GetModel, ModelEntry
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

ENTRY = ModelEntry("M", 0, "o/r:Q4", "llamacpp", "llm", downloaded=True)


class ToyItem(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    count: int = 1
    fast: bool | None = None


class ToyItemsQuery(msgspec.Struct):
    limit: Annotated[int, Meta(ge=1)] = 10
    newest: bool = False


class NamedItem(msgspec.Struct):
    name: str


class ItemDone(msgspec.Struct):
    name: str
    number: int


@route("POST", "items", changes=True, examples={"one": {"name": "a"}})
def add_item(caller: HttpCaller, item: ToyItem) -> ItemDone:
    """Adds an item.

    The document only has the first line.
    """
    return ItemDone(item.name + ",".join(caller.fields), item.count)


@route("GET", "items")
def list_items(_caller: HttpCaller, page: ToyItemsQuery) -> list[ItemDone]:
    """Lists items."""
    return [ItemDone(str(page.newest), page.limit)]


@route(
    "DELETE",
    "/toy/{name}",
    changes=True,
    secret=True,
    status_of=lambda answer: 202 if answer.name == "later" else 200,
    other_statuses=(202,),
)
def remove_item(_caller: HttpCaller, item: NamedItem) -> ItemDone:
    """Removes an item."""
    return ItemDone(item.name, 0)


@route("POST", "/toy/model", scope=Scope.INFERENCE)
def find_model(caller: HttpCaller, item: NamedItem) -> None:
    """Finds a model."""
    caller.ask(lambda number: GetModel(number, item.name), ModelEntry)


@route("GET", "/toy/nothing", also=("/toy/none",), monitors=True)
def nothing(_caller: HttpCaller, _request: Nothing) -> ItemDone:
    """Answers."""
    return ItemDone("", 0)


class PartQuery(msgspec.Struct):
    name: str
    part: int = 1


@route("GET", "/toy/{name}/part", texts=("text/plain",))
def show_part(_caller: HttpCaller, part: PartQuery) -> ItemDone | Content:
    """Shows a part."""
    if part.name == "text":
        return Content("text/plain", b"whole")
    return Content("text/plain", iter([b"in ", b"pieces"])) if part.name == "stream" else ItemDone(part.name, part.part)


class DeclaredDialect(Dialect):
    """The routes of this file."""

    def routes(self, session: SupervisorSession) -> Routes:
        module = ModuleType("declared")
        declared = (add_item, list_items, remove_item, find_model, nothing, show_part)
        vars(module).update({each.operation.summary: each for each in declared})
        return resources(session, module)

    def documentation(self) -> Documentation:
        return Documentation("Declared", "Routes of a test.")


@pytest.fixture
def ask(tmp_path: Path) -> AppClient:
    return AppClient(tmp_path, [DeclaredDialect()])


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_a_path_without_a_slash_is_below_each_prefix(ask: AppClient, prefix: str) -> None:
    assert ask("POST", f"{prefix}/items", {"name": "a", "count": 2}).json == {"name": "aname,count", "number": 2}


def test_fields_come_from_body_query_or_path(ask: AppClient) -> None:
    assert ask("GET", "/v1/items?limit=3&newest=true&other=1").json == [{"name": "True", "number": 3}]
    assert ask("GET", "/v1/items").json == [{"name": "False", "number": 10}]
    for word, newest in {"": True, "1": True, "On": True, "yes": True, "0": False, "no": False, "off": False}.items():
        assert ask("GET", f"/v1/items?newest={word}").json[0]["name"] == str(newest), word
    assert ask("HEAD", "/v1/items").status_code == 200
    assert ask("DELETE", "/toy/a%20b").json == {"name": "a b", "number": 0}
    assert ask("GET", "/toy/none").json == ask("GET", "/toy/nothing").json
    assert ask("GET", "/toy/a/part?part=2&name=b").json == {"name": "a", "number": 2}
    is_error(ask("GET", "/toy/a/part?part=x"), 400, "invalid_request", "part")


def test_an_answer_may_be_a_text_or_a_stream(ask: AppClient) -> None:
    text, stream = ask("GET", "/toy/text/part"), ask("GET", "/toy/stream/part")
    assert (text.content, stream.content) == (b"whole", b"in pieces")
    assert text.headers["Content-Type"] == stream.headers["Content-Type"] == "text/plain"
    assert (text.headers.get("Cache-Control"), stream.headers["Cache-Control"]) == (None, "no-cache")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (None, "name"),
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": "a", "count": "1"}, "count"),
        ({"name": "a", "fast": 1}, "fast"),
        ({"name": "a", "cuont": 2}, "cuont"),
        ({"name": "a", "cuont": None}, "cuont"),
    ],
)
def test_a_wrong_field_is_named(ask: AppClient, body: Any, param: str) -> None:
    is_error(ask("POST", "/v1/items", body), 400, "invalid_request", param)


def test_an_unknown_field_is_refused_with_those_that_there_are(ask: AppClient) -> None:
    message = is_error(ask("POST", "/v1/items", {"name": "a", "cuont": 2}), 400, "invalid_request")["message"]
    assert message == "`cuont` is not a field of this request; its fields: `name`, `count`, `fast`"


def test_a_null_field_is_absent(ask: AppClient) -> None:
    assert ask("POST", "/v1/items", {"name": "a", "count": None, "fast": None}).json["number"] == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [("limit=0", "integer >= 1"), ("limit=x", "integer"), ("limit=1.5", "integer"), ("newest=perhaps", "boolean")],
)
def test_a_wrong_query_is_refused(ask: AppClient, query: str, expected: str) -> None:
    name = query.partition("=")[0]
    error = is_error(ask("GET", f"/v1/items?{query}"), 400, "invalid_request", name)
    assert error["message"] == f"`{name}`: expected {expected}"


def test_secret_answers_are_stored_nowhere_and_unfinished_work_is_202(ask: AppClient) -> None:
    done, later = ask("DELETE", "/toy/now"), ask("DELETE", "/toy/later")
    assert (done.status_code, later.status_code) == (200, 202)
    assert done.headers["Cache-Control"] == "no-store"


def test_a_handler_without_an_answer_sends_no_body(ask: AppClient) -> None:
    ask.reports[GetModel] = ENTRY
    found = ask("POST", "/toy/model", {"name": "m"})
    assert (found.status_code, found.content) == (200, b"")
    ask.reports[GetModel] = Failure(Code.MODEL_NOT_FOUND, "there is no model m", model="m", param="name")
    is_error(ask("POST", "/toy/model", {"name": "m"}), 404, "not_found", "name")


def test_scopes_follow_from_the_declaration(ask: AppClient) -> None:
    routes: dict[str, Any] = DeclaredDialect().routes(ask.session)
    assert needed_scope(routes["/v1/items"], "POST") is needed_scope(routes["/toy/{name}"], "DELETE") is Scope.ADMIN
    assert needed_scope(routes["/v1/items"], "GET") is needed_scope(routes["/toy/model"], "POST") is Scope.INFERENCE
    assert routes["/toy/nothing"].monitors
    assert not routes["/toy/model"].monitors


def test_the_document_follows_from_the_declaration(ask: AppClient) -> None:
    document = ask("GET", "/openapi.json").json
    paths, schemas = document["paths"], document["components"]["schemas"]
    add, listing, remove = paths["/v1/items"]["post"], paths["/v1/items"]["get"], paths["/toy/{name}"]["delete"]
    assert (add["summary"], listing["summary"]) == ("Adds an item.", "Lists items.")
    content = add["requestBody"]["content"]["application/json"]
    assert content["schema"] == {"$ref": "#/components/schemas/ToyItem"}
    assert content["examples"] == {"one": {"value": {"name": "a"}}}
    assert schemas["ToyItem"]["required"] == ["name"]
    assert [(each["name"], each["in"], each["required"]) for each in listing["parameters"]] == [
        ("limit", "query", False),
        ("newest", "query", False),
    ]
    assert [(each["name"], each["in"]) for each in remove["parameters"]] == [("name", "path")]
    assert {"200", "202"} <= set(remove["responses"])
    part = paths["/toy/{name}/part"]["get"]
    assert [(each["name"], each["in"], each["required"]) for each in part["parameters"]] == [
        ("name", "path", True),
        ("part", "query", False),
    ]
    assert set(part["responses"]["200"]["content"]) == {"application/json", "text/plain"}
    assert "content" not in paths["/toy/model"]["post"]["responses"]["200"]
