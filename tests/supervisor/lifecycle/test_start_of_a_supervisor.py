"""A supervisor that dies during its start: the next one takes over what the keeper already holds, and makes the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from protocol.config.settings import Settings, write_settings
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.keeper import channel
from supervisor.keeper.channel import Channel
from supervisor.lifecycle import main
from supervisor.lifecycle.keeper_client import KeeperClient
from supervisor.lifecycle.startup import StartupSettings, lock_state
from supervisor.processes.listener import bind_listener
from tests.support.ports import free_port


class HoldingKeeper:
    """The keeper's end: what it is told to hold it gives to the next supervisor."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}

    def next_supervisor(self) -> tuple[Channel, Channel]:
        """Return both ends of its channel, the keeper's first."""
        ours, theirs = channel.pair()
        for name, descriptor in self.held.items():
            ours.send(channel.HELD, name, descriptor)
        ours.send(channel.BEGIN, "1\n")
        return ours, Channel(theirs)

    def close(self) -> None:
        for descriptor in self.held.values():
            os.close(descriptor)


@pytest.fixture
def keeper() -> Iterator[HoldingKeeper]:
    made = HoldingKeeper()
    yield made
    made.close()


@pytest.mark.parametrize(
    "held",
    [
        (),
        (channel.STATE_LOCK,),
        (channel.STATE_LOCK, channel.LOCK),
        (channel.LISTENER,),
        (channel.STATE_LOCK, channel.LOCK, channel.LISTENER),
    ],
)
def test_what_an_earlier_supervisor_held_is_not_made_again(
    keeper: HoldingKeeper, held: tuple[str, ...], tmp_path: Path
) -> None:
    folder = str(tmp_path)
    settings = Settings(state_dir=folder, cache_dir=folder, runtime_dir=str(tmp_path / "r"), port=free_port())
    if channel.STATE_LOCK in held:
        keeper.held[channel.STATE_LOCK] = lock_state(settings, 4711)
    if channel.LOCK in held:
        keeper.held[channel.LOCK] = RuntimeDirectory(tmp_path / "r").lock_fd
        write_settings(settings, tmp_path / "r")
    if channel.LISTENER in held:
        keeper.held[channel.LISTENER] = bind_listener(settings).detach()
    ours, theirs = keeper.next_supervisor()
    given = StartupSettings(settings, {})
    with (
        patch.object(main.startup, "take_settings", return_value=given),
        patch.object(main, "_serve", return_value=0) as serve,
        patch.dict(os.environ, {"LEMONBUS_KEEPER": "4711"}),
    ):
        assert main.run(KeeperClient(theirs)) == 0
    (_, used, runtime, listener_fd, _), _ = serve.call_args
    assert used.settings == settings
    reports = [received for received in iter(ours.receive, None) if received[0] != channel.STARTED]
    made = {name for word, name, _ in reports if word == channel.HOLD}
    assert made == {channel.STATE_LOCK, channel.LOCK, channel.LISTENER} - set(held)
    for descriptor in (runtime.lock_fd, listener_fd, *(descriptor for _, _, descriptor in reports)):
        os.close(descriptor)
    ours.close()
    theirs.close()
