"""What the supervisor sends of its settings to other nodes: no secrets. Gateways there admit keys before they have met it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from gateway.access.key_ring import KeyRing
from protocol.config.api_keys import Scope
from protocol.config.fields import SECRET_SETTINGS, setting_fields
from protocol.config.model_settings import GroupSettings, ModelSettings, RecipeDefaults, RemoteSettings
from protocol.config.resolver import require_key_beyond_loopback
from protocol.config.settings import SECTIONS, Settings
from protocol.failures import Code, LemonbusError
from protocol.messages.gateway_hosts import GATEWAY_HOST, ConfigureGateways
from protocol.messages.nodes import AgentSnapshot, ConfigureNode
from protocol.messages.peers import Hello, Welcome
from protocol.models.nodes import NodeFacts
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope
from supervisor.nodes.agents import NodeAgents
from supervisor.nodes.node_placement import NodePlacement
from supervisor.nodes.remote_gateways import RemoteGateways
from supervisor.peers.handshake import Handshake
from supervisor.persistence.server_record import ServerRecord

SECRET = "s3cret"
ENGINE = {"env": {"TOKEN": f"{SECRET}-env"}, "args": f"--key {SECRET}-args", "set": {"user": f"{SECRET}-set"}}
KEYS = {name: f"{SECRET}-{name}" for name in SECRET_SETTINGS}
SETTINGS = Settings(
    **KEYS,  # type: ignore[arg-type]
    models={"m": ModelSettings(url=f"http://h/{SECRET}-url", command=[f"{SECRET}-command"], **ENGINE)},  # type: ignore[arg-type]
    defaults={"llamacpp": RecipeDefaults(system_prompt=f"{SECRET}-prompt", **ENGINE)},  # type: ignore[arg-type]
    groups={"g": GroupSettings(models=[f"{SECRET}-member"])},
    remotes={"r": RemoteSettings(url=f"http://h/{SECRET}-remote", api_key_env=SECRET.upper())},
)


class SettingsReceivers:
    """A supervisor with one agent, one host of gateways and one gateway elsewhere, and what it has sent to them."""

    def __init__(self, settings: Settings) -> None:
        self.sent: list[tuple[Any, bytes]] = []
        bus: Any = SimpleNamespace(send=lambda _, message, payload=b"": self.sent.append((message, payload)))
        loop: Any = SimpleNamespace(now=lambda: 0.0, call_later=lambda *_: None, every=lambda *_: None)
        scheduler, record, peers = Mock(), ServerRecord(), Mock()
        scheduler.view.closing = False
        context = ProcessContext(Path("/run"), "boot", os.getpid())
        handshake = Handshake(settings, context, loop, bus, peers, record, lambda _: None)
        agents = NodeAgents(
            settings=settings,
            loop=loop,
            bus=bus,
            peers=peers,
            placement=NodePlacement(lambda *_: None, lambda _: ""),
            record=record,
            scheduler=scheduler,
            decisions=Mock(suspended=True),
            devices=Mock(),
        )
        agents.welcome = handshake.welcome
        snapshot = envelope.pack_payload(AgentSnapshot(NodeFacts("gpu2")))
        agents.hello("a1", Hello("agent", "a1", 1, "boot", node="gpu2"), snapshot)
        gateways = RemoteGateways(settings, "boot", loop, bus, peers, record, Mock(keys=[], exists=False))
        gateways.welcome = handshake.welcome
        gateways.hello("h1", Hello(GATEWAY_HOST, "h1", 1, "", node="edge1"), lambda _: None)
        handshake.welcome("g1", Hello("gateway", "g1", 1, "boot", node="edge1"))

    def settings(self, message: type) -> Settings:
        """Return the settings that came with a message."""
        (payload,) = (payload for sent, payload in self.sent if isinstance(sent, message))
        return msgspec.json.decode(payload, type=Settings)


def test_no_message_to_another_node_has_a_secret_of_the_settings() -> None:
    nodes = SettingsReceivers(SETTINGS)
    assert {Welcome, ConfigureNode, ConfigureGateways} <= {type(message) for message, _ in nodes.sent}
    for message, payload in nodes.sent:
        shown = msgspec.json.encode(message) + payload
        assert SECRET.encode() not in shown.lower(), message


def test_every_setting_that_is_a_secret_or_may_have_one_is_in_the_test_above() -> None:
    suspicious = {name for name in setting_fields() if any(word in name for word in ("key", "secret", "password"))}
    suspicious -= {"files_bytes_of_key"}  # a size
    assert suspicious == SECRET_SETTINGS
    empty = Settings()
    assert all(getattr(SETTINGS, name) != getattr(empty, name) for name in (*SECTIONS, *SECRET_SETTINGS))


@pytest.mark.parametrize("admin_key", ["", KEYS["admin_api_key"]], ids=["one key", "two keys"])
def test_a_gateway_elsewhere_knows_the_keys_before_it_has_met_a_supervisor(admin_key: str, tmp_path: Path) -> None:
    sent = SettingsReceivers(Settings(api_key=KEYS["api_key"], admin_api_key=admin_key)).settings(ConfigureGateways)
    ring = KeyRing(msgspec.structs.replace(sent, state_dir=str(tmp_path), runtime_dir=str(tmp_path)))
    assert ring.required()
    client = ring.find(KEYS["api_key"].encode())
    assert (client.name, client.allows(Scope.ADMIN)) == ("api_key", not admin_key)
    if admin_key:
        assert ring.find(admin_key.encode()).allows(Scope.ADMIN)
    for wrong in ("other", "", sent.api_key, sent.api_key.split()[-1]):
        with pytest.raises(LemonbusError) as refused:
            ring.find(wrong.encode())
        assert refused.value.failure.code is Code.UNAUTHORIZED


def test_a_gateway_elsewhere_serves_beyond_loopback_only_if_there_is_a_key(tmp_path: Path) -> None:
    def beyond_loopback(settings: Settings) -> Settings:
        sent = SettingsReceivers(settings).settings(ConfigureGateways)
        return msgspec.structs.replace(sent, host="0.0.0.0", state_dir=str(tmp_path))

    for name, value in KEYS.items():
        require_key_beyond_loopback(beyond_loopback(Settings(**{name: value})))  # type: ignore[arg-type]
    with pytest.raises(LemonbusError):
        require_key_beyond_loopback(beyond_loopback(Settings()))


def test_processes_that_serve_no_clients_do_not_get_digests() -> None:
    sent = SettingsReceivers(SETTINGS).settings(ConfigureNode)
    assert {getattr(sent, name) for name in SECRET_SETTINGS} == {""}


def test_no_operator_can_write_a_digest_in_place_of_a_key() -> None:
    sent = SettingsReceivers(SETTINGS).settings(ConfigureGateways)
    for name in SECRET_SETTINGS:
        with pytest.raises(ValueError, match="digest"):
            setting_fields()[name].checked(getattr(sent, name))
