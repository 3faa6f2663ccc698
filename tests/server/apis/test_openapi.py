"""The document is true of a real server: its examples work, and random requests get no answer that it does not name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.openapi.document import ALIAS_OF
from tests.fuzz.fakes import fakes_on_loopback
from tests.fuzz.known_names import MODELS, model_of
from tests.support.configuration_file import ConfiguredServer
from tests.support.openapi_bodies import body_check
from tests.support.server import LemonbusServer

CASES = 60
OPERATIONS = 5
"""``make fuzz`` sends 20,000 cases to all operations."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LemonbusServer]:
    """A server whose models and state may be changed in any way. A reload of its configuration changes nothing."""
    with (
        fakes_on_loopback(tmp_path_factory.mktemp("hub")) as settings,
        ConfiguredServer(*MODELS, **settings) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def document(server: LemonbusServer) -> dict[str, Any]:
    found: dict[str, Any] = server.client.get("/openapi.json").json()
    return found


def test_the_page_is_served(server: LemonbusServer) -> None:
    page = server.client.get("/docs")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"openapi.json" in page.body


def inference_examples(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield path, name and body of each JSON example of a route that an engine answers, with the operation's responses."""
    for path, item in document["paths"].items():
        operation = {} if ALIAS_OF in item else item.get("post", {})
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        apart = ("slots", "images", "moderations")  # the last needs a guard model
        if "429" in operation.get("responses", {}) and not any(word in path for word in apart):
            for name, example in content.get("examples", {}).items():
                yield path, name, example["value"], operation["responses"]


def test_the_examples_work_and_their_answers_have_the_declared_types(
    server: LemonbusServer, document: dict[str, Any]
) -> None:
    check, seen = body_check(document), set()
    for path, name, body, responses in inference_examples(document):
        field = "model_id" if "model_id" in body else "model"
        known = {**body, field: model_of(path, "POST", random.Random(1))}
        exchange = server.client.post(path.replace("{voice}", "af_heart"), known)
        assert exchange.status == 200, (path, name, exchange)
        whole_type = exchange.headers["content-type"]
        media_type = whole_type.partition(";")[0]
        declared = responses["200"]["content"]
        content = declared[whole_type if whole_type in declared else media_type]
        if "schema" in content:
            check(content["schema"], exchange.json())
        seen.add((path, media_type))
    assert {media_type for _, media_type in seen} == {
        *("application/json", "text/event-stream", "application/x-ndjson", "audio/mpeg", "audio/wav")
    }
    assert len(seen) > 25


def test_random_requests(server: LemonbusServer) -> None:
    from tests.fuzz.cases import Fuzzer  # noqa: PLC0415 - schemathesis takes 0.3 s, in every process that collects tests

    fuzzer = Fuzzer(f"http://127.0.0.1:{server.port}", seed=1)
    fuzzer.run(CASES, only=OPERATIONS)
    assert fuzzer.sent >= CASES
    assert not fuzzer.violations, "\n".join(fuzzer.violations.values())
    assert not [line for line in server.lines if "exception" in line]
    assert fuzzer.statuses["positive", 200], "some cases were not refused"
