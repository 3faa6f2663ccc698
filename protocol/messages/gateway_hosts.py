"""Messages between the supervisor and gateways on other nodes, each of which has a *host*: the parent of its processes there."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.config.api_keys import ApiKey
from protocol.wire.envelope import control_message

GATEWAY_HOST: Final = "gateway_host"
"""The role of a host in its ``Hello``, which names no boot: it learns that from the ``Welcome``."""


@control_message
class UseKeys(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → host, before ``ConfigureGateways`` and on each change: the file of API keys, as digests."""

    keys: list[ApiKey] = []
    required: bool = False
    """Whether there is, or was, such a file: then callers need a key, even if it lists none."""


@control_message
class ConfigureGateways(msgspec.Struct, frozen=True):
    """Supervisor → host, after each ``Welcome``: the settings for its gateways, as JSON in the payload.

    API keys stand there as digests (``api_keys.without_secrets``): gateways must know them before they have met a supervisor.
    The host writes them with its own address and directories. If they differ from those of its gateways, it starts others.
    """


@control_message
class GatewayLeaves(msgspec.Struct, frozen=True):
    """Gateway on another node → supervisor, its last message: nothing else would tell that it has ended in order."""
