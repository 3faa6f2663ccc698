"""What a caller may see of the running server. Pure.

An administrator sees everything. Any other key sees the models that it may use and its own requests; the others are only
counted. It sees no processes, no command lines and no engine's output, as in ``/v1/health``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from protocol.config.api_keys import model_allowed
from protocol.messages.metrics import EndedRequest
from protocol.messages.model_overview import ModelOverview
from protocol.messages.overview import (
    NodeOverview,
    OverviewReport,
    PlaceMemory,
    RequestOverview,
    RunningServer,
    ServerOverview,
)

if TYPE_CHECKING:
    from gateway.http.request_context import RequestContext

R = TypeVar("R", RequestOverview, EndedRequest)


class Access(msgspec.Struct, frozen=True):
    """Who asks."""

    admin: bool
    """Whether the caller may change the server, and sees all of it."""
    key: str
    """The name of its API key; empty without one."""
    keys_needed: bool
    """Whether the server has keys."""


class Overview(RunningServer, frozen=True, kw_only=True):
    """The running server. Fields with their default values are left out below; dates are in Unix seconds, sizes in bytes."""

    access: Access


class Viewer(NamedTuple):
    """Who looks. Two viewers that are equal see the same."""

    access: Access
    models: tuple[str, ...] = ()
    """Patterns of the models that its key may use; empty: all models."""

    def may_use(self, model: str) -> bool:
        """Return whether the caller's key may use a model."""
        return model_allowed(self.models, model)


def viewer_of(context: RequestContext) -> Viewer:
    """Return who looks, with the rights that its key has now."""
    key = context.api_key
    access = Access(context.is_admin, key.name if key is not None else "", context.keys_needed)
    return Viewer(access, tuple(context.models))


def overview_for(report: OverviewReport, viewer: Viewer) -> Overview:
    """Return what a caller may see of a report."""
    admin = viewer.access.admin
    return Overview(
        time=report.time,
        access=viewer.access,
        server=report.server if admin else _server(report.server, viewer),
        running=report.running,
        waiting=report.waiting,
        memory=report.memory if admin else {name: _memory(each) for name, each in report.memory.items()},
        disks=report.disks,
        models=report.models if admin else {n: _model(m) for n, m in report.models.items() if viewer.may_use(n)},
        downloads={name: each for name, each in report.downloads.items() if viewer.may_use(name)},
        requests=_own(report.requests, viewer),
        ended=_own(report.ended, viewer),
        nodes=report.nodes
        if admin or not report.nodes
        else {n: _node(each, viewer) for n, each in report.nodes.items()},
    )


def _own(requests: Mapping[str, R], viewer: Viewer) -> dict[str, R]:
    """Return the requests that a caller may see. Without a key, it is unknown whose they are."""
    key = viewer.access.key
    return {name: each for name, each in requests.items() if viewer.access.admin or (key and each.key == key)}


def _server(server: ServerOverview, viewer: Viewer) -> ServerOverview:
    default = server.default_model if viewer.may_use(server.default_model) else ""
    return structs.replace(server, pid=0, problems=[], default_model=default)


def _memory(memory: PlaceMemory) -> PlaceMemory:
    return structs.replace(memory, limited_by="")


def _node(node: NodeOverview, viewer: Viewer) -> NodeOverview:
    memory = {name: _memory(each) for name, each in node.memory.items()}
    return structs.replace(
        node, address="", memory=memory, models=[each for each in node.models if viewer.may_use(each)]
    )


def _model(model: ModelOverview) -> ModelOverview:
    failure = structs.replace(model.failure, detail="") if model.failure is not None else None
    replicas = [structs.replace(each, worker="", worker_pid=0, engine_pid=0) for each in model.replicas]
    return structs.replace(model, queue=[], worker_pid=0, engine_pid=0, command=[], failure=failure, replicas=replicas)
