"""``GET pull/variants``, as the lemonade document has it, on the real server with a local hub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compatibility.hub_server import SHARDS, TOKEN, VARIANTS, HubServer, heal
from tests.support.clients.http_client import run_concurrently
from tests.support.clients.http_exchange import HttpExchange
from tests.support.fakes.hub import Hub
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

PREFIXES = ["/v1", "/api/v1", "/v0", "/api/v0"]


@pytest.fixture(scope="module")
def hub(module_hub_server: HubServer) -> Hub:
    return module_hub_server.hub


@pytest.fixture(scope="module")
def server(module_hub_server: HubServer) -> LemonbusServer:
    return module_hub_server.server


@pytest.fixture(autouse=True)
def healthy_hub(hub: Hub) -> Iterator[None]:
    yield
    heal(hub)


def variants(server: LemonbusServer, checkpoint: str, prefix: str = "/v1") -> HttpExchange:
    return server.client.get(f"{prefix}/pull/variants?checkpoint={checkpoint}")


def test_variants_under_every_prefix_from_one_lookup(server: LemonbusServer, hub: Hub) -> None:
    before = hub.requests
    answers = run_concurrently(len(PREFIXES), lambda number: variants(server, VARIANTS, PREFIXES[number]))
    assert hub.requests - before < len(PREFIXES), "equal requests share a lookup"
    for answer in answers:
        assert answer.status == 200, answer
        assert answer.json() == {
            "checkpoint": VARIANTS,
            "recipe": "llamacpp",
            "suggested_name": "Qwen3-8B-GGUF",
            "suggested_labels": ["vision"],
            "mmproj_files": ["mmproj-model-f16.gguf"],
            "variants": [
                {
                    "name": "Q4_K_M",
                    "primary_file": "Qwen3-8B-Q4_K_M.gguf",
                    "files": ["Qwen3-8B-Q4_K_M.gguf"],
                    "sharded": False,
                    "size_bytes": 4920,
                },
                {"name": "Q8_0", "primary_file": SHARDS[0], "files": SHARDS, "sharded": True, "size_bytes": 8500},
            ],
        }


@pytest.mark.parametrize(
    "query",
    ["", "?checkpoint=", "?checkpoint=no-slash", "?checkpoint=a/b/c", "?checkpoint=a/b:Q4_0", "?checkpoint=../b"],
)
def test_variants_error_missing_or_malformed(server: LemonbusServer, query: str) -> None:
    answer = server.client.get(f"/v1/pull/variants{query}")
    refused(answer, 400, "invalid_request")
    assert answer.error["param"] == "checkpoint"


def test_variants_error_hub_404(server: LemonbusServer) -> None:
    answer = variants(server, "acme/absent")
    refused(answer, 404, "not_found")
    assert "acme/absent" in answer.error["message"]


def refused(answer: HttpExchange, status: int, kind: str) -> None:
    assert answer.status == status, answer
    body = answer.json()
    assert body["status"] == "error"
    assert body["message"] == body["error"]["message"] != ""
    assert body["error"]["type"] == kind
    assert body["error"]["code"]


def test_variants_error_hub_transport(server: LemonbusServer, hub: Hub) -> None:
    hub.status = 502
    answer = variants(server, "acme/broken")
    refused(answer, 500, "internal_error")
    assert "502" in answer.error["message"]


def test_variants_without_a_network_name_the_cause(laptop_server: LemonbusServer) -> None:
    answer = variants(laptop_server, VARIANTS)
    refused(answer, 500, "internal_error")
    assert answer.error["message"] == "the hub cannot be reached (it refuses connections)"


def test_variants_error_parsing(server: LemonbusServer, hub: Hub) -> None:
    hub.garbage = b"<html>captive portal</html>"
    refused(variants(server, VARIANTS), 500, "internal_error")


def test_the_servers_token_is_forwarded(server: LemonbusServer, hub: Hub) -> None:
    hub.token = TOKEN
    assert variants(server, VARIANTS).status == 200
    hub.token = "hf_other"
    answer = variants(server, VARIANTS)
    refused(answer, 500, "model_error")
    assert answer.headers["x-should-retry"] == "false"
    assert "HF_TOKEN" in answer.error["message"]
    assert TOKEN not in answer.body.decode()


def test_at_most_four_repositories_at_once(server: LemonbusServer) -> None:
    answers = run_concurrently(6, lambda number: variants(server, f"acme/absent-{number}"))
    statuses = [answer.status for answer in answers]
    assert set(statuses) <= {404, 503}
    assert statuses.count(404) >= 4
    assert all(answer.headers["retry-after"] for answer in answers if answer.status == 503)
    wait_for(lambda: variants(server, "acme/nothing").json().get("variants") == [], "another request is accepted")


def test_an_offline_server_asks_no_hub(offline_server: LemonbusServer, hub: Hub) -> None:
    before = hub.requests
    answer = variants(offline_server, VARIANTS)
    assert answer.status == 500
    assert answer.error["code"] == "offline"
    assert hub.requests == before
