"""Which calls are repeated when another supervisor takes over, and what its answer then means. A table, and pure.

A supervisor that dies may have carried out a call whose answer is lost. If doing the call twice gives the caller the
same answer, it is repeated. Any other call is answered with ``outcome_unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import Code, Failure
from protocol.messages import (
    backend_installs,
    health,
    log_stream,
    metrics,
    model_configuration,
    model_details,
    model_files,
    models,
    reload,
    responses,
    system_info,
    upgrade,
    work,
)
from protocol.models import sampling

OUTCOME_UNKNOWN: Final = Failure(
    Code.OUTCOME_UNKNOWN,
    "the server's supervisor was replaced meanwhile: it is unknown whether this was done; check before you repeat it",
)


class Repetition(NamedTuple):
    """What to do with one kind of call when its supervisor has died."""

    repeated: bool = True
    change: Callable[[Any], msgspec.Struct] | None = None
    """Makes the message for the repetition, if it differs from the first one."""
    done: Mapping[Code, Callable[[Any], Any]] = {}
    """Refusals that show that the first message had its effect. They are answered with the report that this makes."""
    replaced: Callable[[], Any] | None = None
    """Makes the report when the new supervisor speaks another version, so that this process cannot ask it.

    Without it, the caller is told to repeat the call.
    """
    survived: frozenset[Code] = frozenset()
    """Refusals that do not end a call that the first supervisor had answered and that goes on."""


def _whether_loaded_or_not(call: models.LoadModel) -> models.LoadModel:
    """Return the load without its condition: this very call may have loaded the model."""
    return msgspec.structs.replace(call, unless_loaded=False)


def _from_the_beginning(call: log_stream.FollowLogs) -> log_stream.FollowLogs:
    """Return the call for a log that begins anew, with new numbers."""
    return msgspec.structs.replace(call, after_seq=None, boot="")


def _nothing(_call: Any) -> None:
    """Return the report of a call that has none."""


def _begun(call: upgrade.UpgradeServer) -> upgrade.UpgradeServer:
    """Return the call for the supervisor that has taken over because of it."""
    return msgspec.structs.replace(call, begun=True)


def _read_again(call: reload.ReloadSettings) -> reload.ReloadSettings:
    """Return the call for a report that says that there may have been more changes; a dry run makes none."""
    return msgspec.structs.replace(call, repeated=not call.dry_run)


_REPEATED: Final = Repetition()
_NOT_REPEATED: Final = Repetition(repeated=False)

REPETITIONS: Final[Mapping[type[msgspec.Struct], Repetition]] = {
    model_configuration.ShowModel: _REPEATED,
    models.ListModels: _REPEATED,
    models.GetModel: _REPEATED,
    health.GetHealth: _REPEATED,
    health.GetStats: _REPEATED,
    log_stream.FollowLogs: Repetition(change=_from_the_beginning),
    models.LoadModel: Repetition(change=_whether_loaded_or_not),
    models.UnloadModel: Repetition(done={Code.NOT_LOADED: lambda call: [call.model]}),
    models.PinModel: _REPEATED,
    reload.ReloadSettings: Repetition(change=_read_again),
    upgrade.UpgradeServer: Repetition(change=_begun, replaced=upgrade.UpgradeReport),
    # The new supervisor has no reservation for the request, so it is counted when it comes.
    work.ReserveRequest: Repetition(survived=frozenset(Code)),
    model_files.ListVariants: _REPEATED,
    model_files.PullModel: _REPEATED,
    model_files.ListDownloads: _REPEATED,
    # Its report counts the files, which only the first deletion finds.
    model_files.DeleteModel: _NOT_REPEATED,
    model_details.DescribeModels: _REPEATED,
    model_details.ListDefaultModels: _REPEATED,
    model_details.CopyModel: _REPEATED,
    system_info.GetSystemInfo: _REPEATED,
    sampling.GetParams: _REPEATED,
    sampling.SetParams: _REPEATED,
    backend_installs.InstallBackend: _REPEATED,
    backend_installs.UninstallBackend: _REPEATED,
    metrics.GetMetrics: _REPEATED,
    responses.StoreResponse: Repetition(
        done={Code.CONFLICT: _nothing},
        survived=frozenset({Code.CONFLICT, Code.NOT_FOUND, Code.TOO_LARGE, Code.OVERLOADED}),
    ),
    responses.FinishResponse: _REPEATED,
    responses.GetResponse: _REPEATED,
    responses.CancelResponse: _REPEATED,
    responses.DeleteResponse: Repetition(done={Code.NOT_FOUND: _nothing}),
}
"""Every call that a gateway makes."""
