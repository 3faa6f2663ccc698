"""The configurations of `docs/proxies.md`, run by real proxies in front of a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Message, Request, TextMessage

from gateway.access.scopes import Scope, needed_scope
from gateway.app import DIALECTS
from tests.conftest import StartServer
from tests.gateway.app_client import AppClient
from tests.support.proxies import NAME, Nginx, Proxy, TlsClient, documented_caddy, documented_nginx, program
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"
ENDLESS = 60_000
"""Tokens of an answer that does not end before the test ends it."""
CLIENT = "127.0.0.2"
"""The client's address: the proxy's is 127.0.0.1."""
ESTABLISHED, LISTENING = "01", "0A"
"""States of TCP in /proc."""
KEY, ADMIN_KEY = "the-key-of-users", "the-key-of-administrators"
USER = {"Authorization": f"Bearer {KEY}"}
MAKERS: dict[str, Callable[[Path, int], Proxy]] = {"nginx": documented_nginx, "caddy": documented_caddy}

pytestmark = pytest.mark.skipif(
    not program("openssl"), reason="openssl makes the certificate (apt-get install openssl)"
)
needs_nginx = pytest.mark.skipif(not program("nginx"), reason="nginx is not installed (apt-get install nginx)")
needs_caddy = pytest.mark.skipif(not program("caddy"), reason="caddy is not installed (apt-get install caddy)")
PROXIES = [pytest.param("nginx", marks=needs_nginx), pytest.param("caddy", marks=needs_caddy)]


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    """The server that the page describes: behind a trusted proxy, with keys."""
    keys = {"api_key": KEY, "admin_api_key": ADMIN_KEY}
    proxies = ["127.0.0.1/32"]
    return start_module_server(
        "tiny-loop", load=[LOOP], trusted_proxies=proxies, gateway_workers=1, ctx_size=65_536, **keys
    )


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, server: LemonbusServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    with MAKERS[request.param](tmp_path_factory.mktemp(request.param), server.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[TlsClient]:
    client = TlsClient(proxy, CLIENT, USER)
    yield client
    client.close()


def idle(server: LemonbusServer) -> None:
    wait_for(lambda: server.busy_slots(LOOP) == 0, "the slot is idle")
    wait_for(lambda: server.state()["granted"] == 0, "the grant is free")


class _OneEvent(BaseHTTPRequestHandler):
    """Sends one event, and the next when the test says so."""

    protocol_version = "HTTP/1.1"
    released: ClassVar = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", self.path.removeprefix("/v1/responses/").replace(".", "/"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"6\r\nfirst\n\r\n")
        self.released.wait(20)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("maker", PROXIES)
def test_a_proxy_keeps_no_event_back_until_more_comes(tmp_path: Path, maker: str) -> None:
    """This only follows from the proxy's configuration: the server sends no ``X-Accel-Buffering``."""
    backend = ThreadingHTTPServer(("127.0.0.1", 0), _OneEvent)
    backend.daemon_threads = True
    thread = threading.Thread(target=backend.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        with MAKERS[maker](tmp_path, backend.server_port) as proxy:
            for media_type in ("text.event-stream", "application.x-ndjson"):
                _OneEvent.released.clear()
                answer = TlsClient(proxy).start("POST", f"/v1/responses/{media_type}", {})
                answer.until(lambda it: it.body, 10)
                assert (answer.body, answer.over) == (b"first\n", False)
                _OneEvent.released.set()
                answer.finish()
    finally:
        _OneEvent.released.set()
        backend.shutdown()
        thread.join()
        backend.server_close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])
def test_tokens_arrive_at_once_and_a_client_that_hangs_up_stops_the_engine(
    server: LemonbusServer, client: TlsClient, path: str
) -> None:
    messages = [{"role": "user", "content": "hi"}]
    limits = {"max_tokens": ENDLESS, "options": {"num_predict": ENDLESS}, "max_output_tokens": ENDLESS}
    stream = client.start("POST", path, {"model": LOOP, "messages": messages, "input": "hi", "stream": True, **limits})
    stream.until(lambda it: it.body.count(b"\n") > 20)
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it was not kept back until its end")
    assert not stream.over
    stream.hang_up()
    idle(server)


def test_a_client_that_hangs_up_before_a_whole_answer_stops_the_engine(
    server: LemonbusServer, client: TlsClient
) -> None:
    request = client.start_chat(LOOP, max_tokens=ENDLESS)
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it is in the engine", 10)
    request.hang_up()
    idle(server)


def test_logs_have_the_real_client_whatever_it_claims(server: LemonbusServer, client: TlsClient) -> None:
    label = f"through.{client.port}"
    claims = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Host": "localhost",
        "X-Forwarded-Proto": "http",
        "Forwarded": "for=203.0.113.9",
        "X-Request-ID": label,
    }
    answer = client.start("GET", "/v1/models", headers=claims).finish()
    assert (answer.status, answer.headers["x-request-id"]) == (200, label)

    def clients() -> set[str]:
        return {line["client"] for line in server.lines if line.get("request_id") == label}

    assert wait_for(clients, "it is in the log") == {CLIENT}


def test_the_log_is_followed_through_the_proxy(client: TlsClient) -> None:
    socket = WSConnection(ConnectionType.CLIENT)
    key = [(b"Authorization", f"Bearer {ADMIN_KEY}".encode())]
    connection = client.connect()
    connection.sendall(socket.send(Request(host=NAME, target="/logs/stream", extra_headers=key)))
    text = ""
    while not text.startswith('{"type":"logs.snapshot"'):
        data = connection.recv(65536)
        assert data, "the connection ended"
        socket.receive_data(data)
        for event in socket.events():
            if isinstance(event, AcceptConnection):
                connection.sendall(socket.send(Message('{"type": "logs.subscribe", "after_seq": null}')))
            else:
                assert isinstance(event, TextMessage), event
                text += event.data
    assert '"entries"' in text


def test_bodies_may_be_as_large_as_the_servers_limit(client: TlsClient) -> None:
    large = client.post("/v1/chat/completions", b"[" + b" " * 3_000_000)
    assert (large.status, large.error["code"]) == (400, "invalid_request"), "the server's own answer"
    assert client.post("/v1/chat/completions", bytes((32 << 20) + 1000)).status == 413


def test_connections_to_the_server_are_kept(server: LemonbusServer, client: TlsClient) -> None:
    client.get("/v1/models")
    before = closing_connections(server.port)
    assert [client.get("/v1/models").status for _ in range(5)] == [200] * 5
    assert closing_connections(server.port) <= before


def closing_connections(port: int) -> int:
    """Count the connections to a port that at least one side has ended."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, peer, state, *_ = line.split()
        found += any(end.endswith(f":{port:04X}") for end in (local, peer)) and state not in (ESTABLISHED, LISTENING)
    return found


def routes(scope: Scope, folder: Path) -> list[tuple[str, str]]:
    """Return method and path of every route that needs a scope."""
    session = AppClient(folder).session
    return [
        (method, path.replace(":path}", "}").replace("{", "").replace("}", ""))
        for dialect in DIALECTS
        for path, resource in dialect.routes(session).items()
        for method in ("GET", "POST", "DELETE")
        if hasattr(resource, f"on_{method.lower()}") and needed_scope(resource, method) is scope
    ]


def test_what_changes_the_server_is_not_reachable(client: TlsClient, tmp_path: Path) -> None:
    reached = []
    for method, path in routes(Scope.ADMIN, tmp_path):
        answer = client.start(method, path, {}, {"Authorization": f"Bearer {ADMIN_KEY}"}).finish()
        if answer.status != 404 or "x-request-id" in answer.headers:
            reached.append(f"{method} {path}: {answer.status}")
    assert not reached


def test_what_uses_models_is_reachable(client: TlsClient, tmp_path: Path) -> None:
    """Under the version prefixes. The page does not list llama.cpp's own names without a prefix, and some of Mullama's and Ollama's."""
    apart = {"params", "stats", "downloads", "system-info", "system-stats", "pull/variants", "slots", "health"}
    missed = []
    for method, path in routes(Scope.INFERENCE, tmp_path):
        prefix, _, rest = path.removeprefix("/api").removeprefix("/").partition("/")
        if prefix in ("v0", "v1") and rest not in apart:
            answer = client.start(method, path, b"{" if method == "POST" else None, USER).finish()
            if "x-request-id" not in answer.headers:
                missed.append(f"{method} {path}: {answer.status}")
    assert not missed


@needs_nginx
@pytest.mark.parametrize("documented", [False, True])
def test_without_keys_the_clients_of_an_unknown_proxy_are_strangers(
    shared_server: LemonbusServer, tmp_path: Path, documented: bool
) -> None:
    """This includes nginx with only ``proxy_pass``, which adds no header and sends our own address as ``Host``."""
    plain = (
        f"server {{ listen 127.0.0.1:{{port}}; location / {{ proxy_pass http://127.0.0.1:{shared_server.port}; }} }}"
    )
    with ExitStack() as stack:
        if documented:
            made = stack.enter_context(documented_nginx(tmp_path, shared_server.port))
            client: Any = TlsClient(made)
            denied = {("POST", "/v1/unload"): 404}
        else:
            made = stack.enter_context(Nginx(tmp_path, plain))
            client = type(shared_server.client)(made.port)
            denied = {("POST", "/v1/unload"): 403, ("POST", "/api/pull"): 403, ("GET", "/logs/stream"): 403}
        for (method, path), status in denied.items():
            assert client.start(method, path, {"model": "no.such"}).finish().status == status, path
        answer = client.chat("extra.tiny-chat", max_tokens=2)
        assert answer.status == 200, "they may use models"
        missing = client.chat("SmolLM2-135M-Instruct-GGUF", max_tokens=2)
        assert (missing.status, json.loads(missing.body)["error"]["code"]) == (403, "forbidden"), "no download begins"
        client.close()
