"""Model files of other nodes: the messages of the jobs that send them, that fetch them, and that look for them.

A file is fetched over HTTP from the head, or from another node that has it. Only a sender's own node knows the path that an id means.
What its sha256 is, the head says over the bus: no sender is believed.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.failures import Failure
from protocol.messages.model_files import CheckpointSource
from protocol.models.recipes import ModelSpec
from protocol.wire.envelope import control_message

FileId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class FileRoot(enum.StrEnum):
    """The folder that a file of a model lies below. Each node has its own."""

    HUB = "hub"
    """The Hugging Face hub's cache."""
    CACHE = "cache"
    """The cache directory of lemonbus."""
    OTHER = "other"
    """Any other folder of the head: elsewhere it is a folder of ``node_files`` in the cache directory."""


class TransferFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of a model, as it is on the head."""

    id: FileId
    """What senders call it. Another content, to judge by size and time, has another id."""
    path: str
    """On the head."""
    root: FileRoot
    name: str
    """Below the root: folders and a file name, separated by slashes."""
    size: int
    mtime_ns: int
    """When its content was changed. Copies get the same time."""
    blob: str = ""
    """The name of the hub's blob that it is a link to. That is the digest of its content; empty: it is not such a link."""
    sha256: Sha256 | Literal[""] = ""
    """As it is recorded where the file comes from. Without this and without a blob, the head computes it: :class:`UseSenders`."""


class FileSender(msgspec.Struct, frozen=True):
    """A sender. ``address``: ``HOST:PORT``."""

    node: str
    address: str


@control_message
class StartFileTransfer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → job on the node that lacks a model: look for its files, and fetch those that are missing.

    ``senders`` are tried in their order, again and again as long as bytes arrive; without any, it waits for some. ``key`` is what
    they demand.
    """

    spec: ModelSpec
    """The model. The job needs its name; the rest is for a supervisor that takes over."""
    files: list[TransferFile]
    senders: list[FileSender] = []
    key: str = ""
    downloads: list[CheckpointSource] = []
    """Where the model can be downloaded from, as on the head. The job does so when no sender helps."""
    distrusted: bool = False
    """The node has sent other bytes of these files: what it has of them is read, compared with the head's digests, and fetched again."""


@control_message
class UseSenders(msgspec.Struct, frozen=True):
    """Supervisor → job that fetches files: from now on these are the senders, and these digests are known."""

    senders: list[FileSender]
    digests: dict[FileId, Sha256] = {}
    """The sha256 of files, as the head has computed them."""


@control_message
class TransferProgress(msgspec.Struct, frozen=True):
    """Job → supervisor, ten times a second at most: how much of a model is on its node. Bytes of all files together."""

    model: str
    done: int
    total: int


@control_message
class FilesPresent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor: every file of the model is on the node. ``paths``: path on the head → path on the node."""

    model: str
    paths: dict[str, str]
    found: list[str] = []
    """Those paths on the node that were there, under the head's own path: they may be in a folder that both share."""
    refused: list[str] = []
    """Nodes that sent other bytes than those of the head."""


@control_message
class TransferFailed(msgspec.Struct, frozen=True):
    """Job → supervisor: some file could not be fetched. What has arrived stays for the next try."""

    model: str
    failure: Failure


@control_message
class FindFiles(msgspec.Struct, frozen=True):
    """Supervisor → job on a node that has joined: look for the files of these models, and fetch nothing."""

    models: dict[str, list[TransferFile]]


@control_message
class FilesFound(msgspec.Struct, frozen=True):
    """Job → supervisor: the models with all of their files on the node."""

    models: list[FilesPresent]


class SharedFile(msgspec.Struct, frozen=True):
    """A file that a sender may send. ``path`` is on its own node; ``size`` and ``mtime_ns`` as in :class:`TransferFile`."""

    id: FileId
    path: str
    size: int
    mtime_ns: int


@control_message
class ShareFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → job: send these files, and no others, to everything that shows the key. A later message replaces the files.

    It listens at its node's address on a port that the system chooses.
    """

    key: str
    files: list[SharedFile] = []
    digested: list[FileId] = []
    """Those of which it also reports the sha256: only the head is asked for any."""


@control_message
class SharingFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor: it sends the files of :class:`ShareFiles` at this ``HOST:PORT``. Again for each digest that it has computed."""

    address: str
    digests: dict[FileId, Sha256] = {}
    """All that are known of the files in ``digested``."""


@control_message
class SharingFailed(msgspec.Struct, frozen=True):
    """Job → supervisor: it cannot listen at its node's address. ``why`` is a sentence."""

    why: str
