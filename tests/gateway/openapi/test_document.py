"""The document describes every route, and truthfully."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import falcon
import jsonschema_rs
import msgspec
import pytest

from gateway.api.common.inference.inference_resource import InferenceResource
from gateway.api.common.operations import Documentation, Operation
from gateway.app import DIALECTS
from gateway.http.bodies import body_decoding
from gateway.http.errors import DEFAULT_FORMATS
from gateway.http.request_context import OPEN_PATHS, PAGE_FILES
from gateway.openapi.document import ALIAS_OF
from protocol.failures import Code, Failure
from protocol.runtime import logs
from tests.gateway.api.toy_dialect import SayResource, ToyDialect
from tests.gateway.app_client import AppClient
from tests.support.clients.deferred_packages import schemathesis
from tests.support.openapi_bodies import body_check

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_BODY = {"post_api_copy", "delete_api_delete"}
"""Operations that answer without a body."""


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> AppClient:
    return AppClient(tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="module")
def document(ask: AppClient) -> dict[str, Any]:
    found: dict[str, Any] = ask("GET", "/openapi.json").json
    return found


def methods_of(item: dict[str, Any]) -> dict[str, Any]:
    """Return the operations of a path, by their methods."""
    return {method: operation for method, operation in item.items() if method != ALIAS_OF}


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference refers to."""
    while "$ref" in part:
        reference, part = part["$ref"], document
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    return part


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each operation once."""
    for path, item in document["paths"].items():
        for method, operation in methods_of(item).items():
            yield f"{method.upper()} {path}", operation


def declared(ask: AppClient) -> Iterator[tuple[str, object, str, Operation]]:
    """Yield the path, resource, method and declaration of every operation of a dialect."""
    for dialect in DIALECTS:
        documentation = dialect.documentation()
        for path, resource in dialect.routes(ask.session).items():
            for method, operation in documentation.of(resource).items():
                yield path, resource, method, operation


def test_it_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    schemathesis.openapi.from_dict(document).validate()


def test_it_has_every_route_with_each_method(ask: AppClient, document: dict[str, Any]) -> None:
    for dialect in DIALECTS:
        for path, resource in dialect.routes(ask.session).items():
            shown = re.sub(r":\w+}", "}", path)
            if path == "/api/models/{path:path}":
                continue  # two paths of the document
            item = methods_of(document["paths"][shown])
            methods = {each.lower() for each in falcon.HTTP_METHODS if hasattr(resource, f"on_{each.lower()}")} - {
                "head"
            }
            assert set(item) == methods, path
    assert {"get", "delete"} == set(document["paths"]["/api/models/{name}"])
    assert {"post"} == set(document["paths"]["/api/models/{name}/unload"])
    assert set(OPEN_PATHS) <= set(document["paths"])


def test_paths_with_the_same_operations_name_the_first(document: dict[str, Any]) -> None:
    paths = document["paths"]
    aliases = {path: item[ALIAS_OF] for path, item in paths.items() if ALIAS_OF in item}
    assert aliases["/api/v0/embeddings"] == "/v1/embeddings"
    assert aliases["/api/v0/load"] == "/v0/load"
    assert "/chat/completions" not in aliases  # its errors have another form
    for alias, path in aliases.items():
        assert set(methods_of(paths[alias])) == set(methods_of(paths[path]))
        assert ALIAS_OF not in paths[path]


def test_a_route_without_a_declaration_is_an_error(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    class Undeclared(ToyDialect):
        def documentation(self) -> Documentation:
            whole = super().documentation()
            return whole._replace(operations={SayResource: whole.operations[SayResource]})

    logs.configure("gateway", "error", "json")
    ask = AppClient(tmp_path, [Undeclared()])
    assert ask("GET", "/openapi.json").status_code == 500
    assert [record["level"] for record in records] == ["error"]
    declared_too = AppClient(tmp_path, [ToyDialect()])("GET", "/openapi.json").json
    assert declared_too["paths"]["/toy/v7/say"]["post"]["tags"] == ["Toy"]
    responses = declared_too["components"]["responses"]
    assert "529" in declared_too["paths"]["/toy/v7/say"]["post"]["responses"]
    assert responses["ToyError529"]["content"]["application/json"]["schema"]["$ref"].endswith("/ToyError")


def test_every_operation_has_an_answer_and_a_body_if_it_reads_one(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    for name, operation in operations(document):
        succeeded = next(iter(operation["responses"].values()))
        refused = set(operation["responses"]) == {"501"} or "501 says" in operation["summary"]
        if not refused:
            upgraded = "101" in operation["responses"]
            assert "content" in succeeded or upgraded or operation["operationId"] in WITHOUT_BODY, name
        assert {"400", "401", "403", "500", "503"} <= set(operation["responses"]), name


def test_every_inference_route_has_examples(ask: AppClient) -> None:
    missing = [
        path
        for path, resource, _, operation in declared(ask)
        if isinstance(resource, InferenceResource) and not operation.examples
    ]
    assert not missing


def test_the_declared_body_is_what_the_route_decodes(ask: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each example, the type in the document is the type that the gateway decodes."""
    decoded: list[Any] = []
    original = body_decoding.decode_for_passing_on

    def spy(data: bytes, cls: Any, client: str = "") -> Any:
        decoded.append(cls)
        return original(data, cls, client)

    monkeypatch.setattr(body_decoding, "decode_for_passing_on", spy)
    accepted = Failure(Code.CONFLICT, "it came through")
    wrong = []
    for path, _, method, operation in declared(ask):
        for name, example in operation.examples.items() if operation.body else ():
            decoded.clear()
            ask.bus.reports, ask.bus.answers = AlwaysFailing(accepted), AlwaysFailing(accepted)
            result = ask(method, path.replace("{slot_id}", "0?action=save").replace("{voice}", "a"), example)
            if result.status_code != 409 or not (operation.body in decoded or dict in decoded):
                wrong.append((method, path, name, result.status_code, result.text, decoded.copy()))
    assert not wrong


class AlwaysFailing(dict[Any, Any]):
    """Every answer is this failure."""

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def __getitem__(self, key: Any) -> Failure:
        return self._failure


def test_the_declared_query_is_what_the_route_reads(ask: AppClient, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    original = falcon.Request.get_param

    def spy(request: falcon.Request, name: str, *args: Any, **kwargs: Any) -> Any:
        read.add(name)
        return original(request, name, *args, **kwargs)

    monkeypatch.setattr(falcon.Request, "get_param", spy)
    wrong = []
    for path, _, method, operation in declared(ask):
        if operation.body is None or operation.examples:
            read.clear()
            ask.bus.reports = ask.bus.answers = AlwaysFailing(Failure(Code.CONFLICT, "it came through"))
            body = next(iter(operation.examples.values()), None) if operation.body else None
            ask(method, re.sub(r"{\w+(:\w+)?}", "0", path), body)
            known = {field.name for field in msgspec.structs.fields(operation.query)} if operation.query else set()
            if read - known:
                wrong.append((method, path, read - known))
    assert not wrong


@pytest.mark.parametrize("dialect", [*DIALECTS, ToyDialect()], ids=lambda dialect: dialect.name)
def test_errors_have_the_declared_form_and_status(dialect: Any, ask: AppClient) -> None:
    error = dialect.documentation().error
    form = dialect if dialect.error_prefixes else DEFAULT_FORMATS.for_path("/")
    validator = jsonschema_rs.validator_for(msgspec.json.schema(error))
    for code in Code:
        failure = Failure(code, "what happened", model="m", param="p", detail="d")
        validator.validate(msgspec.json.decode(form.error_body(failure, "req-1", detail=True)))
        validator.validate(msgspec.json.decode(form.error_body(Failure(code, "what happened"), "req-1")))


def test_families_that_share_a_path_have_both_forms_of_errors(document: dict[str, Any]) -> None:
    responses = document["paths"]["/v1/models"]["get"]["responses"]
    shown = document["components"]["responses"][responses["401"]["$ref"].rpartition("/")[2]]
    forms = [each["$ref"].rpartition("/")[2] for each in shown["content"]["application/json"]["schema"]["anyOf"]]
    assert forms == ["ErrorBody", "AnthropicError"]
    assert {"503", "529"} <= set(responses)


def test_keys_are_in_it_only_where_the_server_has_keys(tmp_path: Path, document: dict[str, Any]) -> None:
    assert "securitySchemes" not in document["components"]
    ask = AppClient(tmp_path, api_key="k" * 32)
    found = ask("GET", "/openapi.json").json
    assert set(found["components"]["securitySchemes"]) == {"bearer", "x-api-key"}
    paths = found["paths"]
    assert paths["/v1/load"]["post"]["security"] == [{"bearer": ["admin"]}, {"x-api-key": ["admin"]}]
    assert paths["/v1/completions"]["post"]["security"][0] == {"bearer": ["inference"]}
    assert paths["/live"]["get"]["security"] == paths["/docs"]["get"]["security"] == []


def test_it_is_sent_once_to_a_client_that_keeps_it(ask: AppClient) -> None:
    first = ask("GET", "/openapi.json")
    etag = first.headers["ETag"]
    for given in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        again = ask("GET", "/openapi.json", headers={"If-None-Match": given})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert ask("GET", "/openapi.json", headers={"If-None-Match": '"other"'}).content == first.content
    assert ask("HEAD", "/openapi.json").headers["ETag"] == etag


def test_a_gateway_that_is_not_asked_has_not_loaded_it() -> None:
    code = (
        "import sys, gateway.app; "
        "print([name for name in sys.modules if name.endswith('.documentation') or name.startswith('gateway.openapi.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gateway.openapi.routes']"


def test_streams_are_said_to_be_streams(document: dict[str, Any]) -> None:
    def media(path: str) -> set[str]:
        return set(document["paths"][path]["post"]["responses"]["200"]["content"])

    assert media("/v1/chat/completions") == {"application/json", "text/event-stream"}
    assert media("/api/chat") == {"application/json", "application/x-ndjson"}
    form = document["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]
    assert set(form) == {"multipart/form-data"}


def test_without_a_key_every_operation_is_refused_in_its_form(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32)
    document = ask("GET", "/openapi.json").json
    check = body_check(document)
    for path, item in document["paths"].items():
        for method, operation in methods_of(item).items():
            result = ask(method.upper(), path.replace("{", "").replace("}", ""))
            if path in OPEN_PATHS or path.startswith(PAGE_FILES):
                assert result.status_code == (404 if path.startswith(PAGE_FILES) else 200), path
                continue
            assert result.status_code == 401, path
            declared_body = resolved(document, operation["responses"]["401"])["content"]["application/json"]["schema"]
            check(declared_body, result.json)


def test_other_methods_are_405_in_the_form_of_the_path(ask: AppClient, document: dict[str, Any]) -> None:
    check = body_check(document)
    for path, item in document["paths"].items():
        result = ask("PATCH", path.replace("{", "").replace("}", ""))
        assert result.status_code == 405, path
        operation = next(iter(methods_of(item).values()))
        declared_body = resolved(document, operation["responses"]["400"])["content"]["application/json"]["schema"]
        check(declared_body, result.json)
