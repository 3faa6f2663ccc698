"""A file of keys that was broken by hand: the keys stay valid whichever process dies, and the operator is told."""

from __future__ import annotations

from pathlib import Path

from protocol.config.api_keys import KEYS_FILE
from tests.conftest import ADMIN_KEY, StartServer
from tests.gateway.access.key_files import bearer, key, store
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.waiting import wait_for


def test_valid_keys_survive_gateways_and_supervisors(start_server: StartServer) -> None:
    server = start_server("tiny-chat", admin_api_key=ADMIN_KEY)
    state = Path(server.settings.state_dir)
    store(state, key("ci"))
    allowed = RawHttpClient(server.port, bearer("ci"))
    wait_for(lambda: allowed.get("/v1/models").status == 200, "the key is valid")
    (state / KEYS_FILE).write_text("{")
    broken = "the file of API keys cannot be used: keys.json: "

    def admits_it() -> None:
        assert allowed.get("/v1/models").status == 200
        assert RawHttpClient(server.port, bearer("other")).get("/v1/models").status == 401
        assert server.client.get("/v1/models").status == 401
        (problem,) = server.state()["problems"]
        assert problem.startswith(broken)

    admits_it()
    (gateway,) = server.gateway_pids()
    processes.kill(gateway)
    wait_for(lambda: server.gateway_pids() not in ([gateway], []), "another gateway is there")
    admits_it()
    supervisor = server.kill_supervisor()
    wait_for(lambda: server.supervisor_pid != supervisor and server.health()["status"] == "ok", "another one serves")
    (gateway,) = server.gateway_pids()
    processes.kill(gateway)
    wait_for(lambda: server.gateway_pids() not in ([gateway], []), "another gateway is there")
    admits_it()
    assert any(line["event"] == "the file of API keys cannot be used" for line in server.lines)
    store(state, key("other"))
    assert (allowed.get("/v1/models").status, server.state()["problems"]) == (401, [])
