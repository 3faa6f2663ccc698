"""What the operator's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.common.operations import BODY, CONFLICT, MODEL, NOT_FOUND, UNSUPPORTED, Documentation, Operation
from gateway.api.operator import configuration, keys, reload, settings, upgrade
from protocol.config.api_keys import KeyRights


class ReloadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to apply what has changed."""

    dry_run: bool = False


class UpgradeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An upgrade has no fields."""


DOCUMENTATION: Final = Documentation(
    "lemonbus",
    "Routes for the operator of this server.",
    {
        configuration.ConfigurationResource: {
            "GET": Operation(
                "Shows what is configured for a model, and where each value comes from.",
                answer=configuration.ConfigurationAnswer,
                query=configuration.ConfigurationQuery,
                failures=MODEL,
            )
        },
        keys.KeysResource: {
            "GET": Operation("Lists the API keys, without their digests.", answer=keys.KeysAnswer),
            "POST": Operation(
                "Adds an API key, and returns it this once. 409 if it would be the first one and not an administrator's.",
                body=KeyRights,
                answer=keys.AddedKey,
                failures=BODY | CONFLICT,
                examples={"a client": {"name": "ci", "models": ["Qwen*"], "requests_per_minute": 60}},
            ),
        },
        keys.KeyResource: {
            "DELETE": Operation(
                "Revokes an API key: no request that begins after the answer is admitted with it.",
                answer=keys.ChangedKeys,
                failures=NOT_FOUND | CONFLICT,
            )
        },
        settings.SettingsResource: {
            "GET": Operation(
                "Shows the settings of this server, and where each comes from.", answer=settings.SettingsAnswer
            )
        },
        upgrade.UpgradeResource: {
            "GET": Operation(
                "Says what serves now; 500 if the last upgrade has failed since the present supervisor serves.",
                answer=upgrade.UpgradeAnswer,
                may_take_longer=True,
            ),
            "POST": Operation(
                "Lets the release that is installed now take over; 500 if it cannot start, and nothing has changed.",
                body=UpgradeRequest,
                body_required=False,
                answer=upgrade.UpgradeAnswer,
                may_take_longer=True,
                failures=BODY | UNSUPPORTED,
            ),
        },
        reload.ReloadResource: {
            "POST": Operation(
                "Reads the configuration again, and applies what has changed.",
                body=ReloadRequest,
                body_required=False,
                answer=reload.ReloadAnswer,
                failures=BODY | UNSUPPORTED,
                examples={"only show": {"dry_run": True}},
            )
        },
    },
)
