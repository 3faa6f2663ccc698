"""Messages about the models of other servers: what the supervisor asks of a job."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from protocol.wire.envelope import control_message

MAX_MODELS = 2000
"""Models of one server that are listed here."""
MAX_LABELS = 16
"""Labels of one of them."""


class RemoteModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model as another server lists it."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    labels: list[Annotated[str, Meta(max_length=64)]] = []


class RemoteList(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one server has answered."""

    remote: str
    """The name of its section."""
    models: list[RemoteModel] = []
    problem: str = ""
    """Why the list is missing; empty if it is not."""


@control_message
class StartRemoteListing(msgspec.Struct, frozen=True):
    """Supervisor → job: ask these servers for their models. The job knows their addresses from the settings."""

    remotes: list[str]


@control_message
class RemotesListed(msgspec.Struct, frozen=True):
    """Job → supervisor: what one of them has answered, and at the end of the job, what each of them has."""

    lists: list[RemoteList]
    complete: bool
    """Whether these are all, and the job has ended."""
