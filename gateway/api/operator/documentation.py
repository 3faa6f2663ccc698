"""What the operator's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.common.operations import BODY, MODEL, UNSUPPORTED, Documentation, Operation
from gateway.api.operator import configuration, reload, upgrade


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
