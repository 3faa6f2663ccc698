"""A real gateway process fetches images of a real server: in every dialect, within its time, and no longer than its client waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.decoding.images import decode_image
from protocol.failures import Code, Failure
from tests.gateway.app_client import AppClient
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import answer_whole, open_request
from tests.support.fakes.image_server import PNG, ImageServer
from tests.support.media import data_url

INLINE = data_url(PNG)
DECODED = data_url(decode_image(PNG, 64, alpha=False).data)


@pytest.fixture(scope="module")
def images() -> Iterator[ImageServer]:
    with ImageServer() as server:
        yield server


@pytest.fixture(scope="module")
def fetching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    folder = tmp_path_factory.mktemp("fetching")
    settings: dict[str, Any] = {"fetch_images_networks": ["127.0.0.0/8"], "fetch_images_timeout": 600.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RES_OPTIONS", "timeout:1 attempts:1")  # a name server may be unreachable
        with running_gateway(folder, fetch_images=True, **settings) as harness:
            yield harness


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    folder = tmp_path_factory.mktemp("impatient")
    settings: dict[str, Any] = {"fetch_images_networks": ["127.0.0.1/32"], "fetch_images_timeout": 0.5}
    with running_gateway(folder, fetch_images=True, **settings) as harness:
        yield harness


def openai_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def chat(*urls: str) -> dict[str, Any]:
    parts = [openai_part(url) for url in urls]
    return {"model": "tiny", "messages": [{"role": "user", "content": [{"type": "text", "text": "what?"}, *parts]}]}


def responses(url: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": "what?"}, {"type": "input_image", "image_url": url}]
    return {"model": "tiny", "store": False, "input": [{"role": "user", "content": content}]}


def anthropic(url: str) -> dict[str, Any]:
    image = {"type": "image", "source": {"type": "url", "url": url}}
    content = [{"type": "text", "text": "what?"}, image]
    return {"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": content}]}


DIALECTS = [
    ("/v1/chat/completions", chat, "messages[0].content[1].image_url"),
    ("/chat/completions", chat, "messages[0].content[1].image_url"),
    ("/v1/apply-template", chat, "messages[0].content[1].image_url"),
    ("/v1/responses", responses, "input[0].content[1].image_url"),
    ("/v1/messages", anthropic, "messages[0].content[1].source.url"),
    ("/v1/messages/count_tokens", anthropic, "messages[0].content[1].source.url"),
]


@pytest.mark.parametrize(("path", "body", "field"), DIALECTS)
def test_engines_get_the_image_itself(
    fetching: GatewayHarness, images: ImageServer, path: str, body: Any, field: str
) -> None:
    asked = len(images.asked)
    with open_request(fetching, body(images.url("/ok", "localhost")), path):
        received = fetching.next_request()
        fetching.do(lambda: answer_whole(fetching, received))
    content = msgspec.json.decode(received.body)["messages"][0]["content"]
    assert content[1]["image_url"]["url"] == DECODED, field
    assert content[0] == {"type": "text", "text": "what?"}
    assert len(images.asked) == asked + 1


@pytest.mark.parametrize(("path", "body", "field"), DIALECTS)
def test_a_refusal_names_the_field_and_the_host(
    fetching: GatewayHarness, images: ImageServer, path: str, body: Any, field: str
) -> None:
    for url, host in ((images.url("/status/404?secret"), "127.0.0.1"), ("http://169.254.169.254/x", "169.254.169.254")):
        status, _, answer = fetching.post(path, body(url))
        text = answer.decode()
        assert status == 400, text
        assert field in text
        assert f"no image from {host}" in text
        assert "secret" not in text


@pytest.mark.parametrize(("path", "body", "field"), DIALECTS)
def test_nothing_is_fetched_unless_it_is_configured(
    tmp_path: Path, images: ImageServer, path: str, body: Any, field: str
) -> None:
    asked = len(images.asked)
    answer = AppClient(tmp_path)("POST", path, body(images.url("/ok")))
    assert (answer.status_code, len(images.asked)) == (400, asked)
    assert field in answer.text
    assert "data URL" in answer.text


@pytest.mark.parametrize(("path", "body", "field"), DIALECTS)
def test_nothing_is_fetched_for_a_request_that_is_refused(
    fetching: GatewayHarness, images: ImageServer, path: str, body: Any, field: str
) -> None:
    asked = len(images.asked)
    fetching.reservation_failure = Failure(Code.RATE_LIMITED, "the limit is 1 request a minute", retry_after=7)
    try:
        status, headers, answer = fetching.post(path, body(images.url("/ok")))
    finally:
        fetching.reservation_failure = None
    assert (status, headers["retry-after"]) == (429, "7"), (field, answer)
    assert len(images.asked) == asked


def test_a_request_takes_its_reservation_over(fetching: GatewayHarness, images: ImageServer) -> None:
    with open_request(fetching, chat(images.url("/ok"), images.url("/ok?2"))):
        received = fetching.next_request()
        fetching.do(lambda: answer_whole(fetching, received))
    reservation = fetching.reserved[-1]
    assert (reservation.model, reservation.endpoint) == ("tiny", "chat/completions")
    assert received.message.reservation == reservation.number
    fetching.forgotten(reservation.number)


def test_the_reservation_of_a_request_without_its_image_ends(fetching: GatewayHarness, images: ImageServer) -> None:
    assert fetching.post("/v1/chat/completions", chat(images.url("/status/404")))[0] == 400
    fetching.forgotten(fetching.reserved[-1].number)


def test_an_image_that_is_named_twice_is_fetched_once(fetching: GatewayHarness, images: ImageServer) -> None:
    asked = len(images.asked)
    with open_request(fetching, chat(images.url("/ok?1"), images.url("/ok?1"), INLINE)):
        received = fetching.next_request()
        fetching.do(lambda: answer_whole(fetching, received))
    assert len(images.asked) == asked + 1


def test_images_are_bounded_in_number(fetching: GatewayHarness, images: ImageServer) -> None:
    asked = len(images.asked)
    status, _, answer = fetching.post("/v1/chat/completions", chat(*(images.url(f"/ok?{n}") for n in range(17))))
    assert (status, len(images.asked)) == (400, asked + 16)
    assert msgspec.json.decode(answer)["error"]["param"] == "messages[0].content[17].image_url"


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_a_fetch_has_an_end(impatient: GatewayHarness, path: str) -> None:
    with ImageServer() as slow:  # of its own: it may get the request when the answer is here
        status, _, answer = impatient.post("/v1/chat/completions", chat(slow.url(path)))
    assert status == 400
    assert "took longer than 0.5 seconds" in answer.decode()


def test_a_fetch_delays_no_other_request_and_ends_when_its_client_hangs_up(
    fetching: GatewayHarness, images: ImageServer
) -> None:
    path = "/drip/until/its/client/leaves"
    with open_request(fetching, chat(images.url(path))):
        wait_for(lambda: path in images.dripping)
        assert fetching.get("/live")[0] == 200
        assert path not in images.broken, "it goes on meanwhile"
    wait_for(lambda: path in images.broken)


def test_foreign_pages_have_nothing_fetched_without_a_key(fetching: GatewayHarness, images: ImageServer) -> None:
    asked = len(images.asked)
    for headers in ({"Origin": "https://page.example"}, {"X_Forwarded_For": "192.0.2.1"}):
        status, _, answer = fetching.post("/v1/chat/completions", chat(images.url("/ok")), **headers)
        assert (status, len(images.asked)) == (403, asked), answer


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "-", "x" * 64, "1.2.3.4.5"])
def test_a_host_that_cannot_be_resolved_is_400_and_no_error_of_ours(fetching: GatewayHarness, host: str) -> None:
    status, _, body = fetching.post("/v1/chat/completions", chat(f"http://{host}/a.png"))
    error = msgspec.json.decode(body)["error"]
    assert (status, error["code"]) == (400, "invalid_request")
    assert f"no image from {host}: " in error["message"]
    assert fetching.internal_errors() == 0
