"""What the files of this server take on the disk, and the removal of those that nothing uses. Sizes in bytes, as the disk allocates them."""

from __future__ import annotations

import enum

import msgspec

from protocol.failures import Failure
from protocol.messages.calls import repeated_call
from protocol.wire.envelope import control_message


class DiskItemKind(enum.StrEnum):
    """What a file or a folder is."""

    MODEL = "model"
    """The files of a model that is downloaded, or in the extra models directory."""
    PARTIAL = "partial_download"
    """What a download, an installation or a removal that did not end has left."""
    UNKNOWN = "unknown_model"
    """A folder of downloaded files that belong to no model, because its name was deleted."""
    ENGINE = "engine"
    """An installed version of a backend."""
    PROMPT_CACHE = "prompt_cache"
    """The kept prompt cache of a model."""
    STATE = "state"
    """The files of the state directory."""


class DiskItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file or folder, or the files of one model."""

    kind: DiskItemKind
    name: str
    """Of the model or the engine, otherwise of the file."""
    path: str
    """On the server's machine. Of a model: its first file."""
    size: int
    """Bytes, each file counted once."""
    shared: int = 0
    """Those of them that other models use as well."""
    unused: str = ""
    """Why nothing uses it; empty: something does, or may."""
    removed: bool = False
    freed: int = 0
    """What its removal gave back to the disk."""
    kept: str = ""
    """Why it was not removed although nothing seemed to use it."""


class DiskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found, the largest first, and what was removed."""

    items: list[DiskItem]
    total: int
    """Bytes of all items. What several items share counts once."""
    freed: int = 0


@repeated_call
class MeasureDisk(msgspec.Struct, frozen=True):
    """→ :class:`DiskReport`, when a job has looked at the disk."""

    number: int


# What a supervisor that died has had removed is gone, and needs no second removal.
@repeated_call
class PruneDisk(msgspec.Struct, frozen=True, omit_defaults=True):
    """Remove what nothing uses → :class:`DiskReport` of only that."""

    number: int
    dry_run: bool = False
    """Remove nothing."""
    prompt_caches: bool = False
    """Also the kept prompt caches of models that exist."""


class StoredModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the files of a model are, if they are anywhere."""

    name: str
    checkpoints: list[tuple[str, str]] = []
    """(checkpoint, pattern of its projector), for each source."""
    files: list[str] = []
    """Of a model in the extra models directory: the first file, the projector, and the parts."""
    parts: list[str] = []
    """Checkpoints of its parts, which other models may also have."""


@control_message
class StartDiskJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → job: measure, and remove what nothing uses if ``remove``."""

    models: list[StoredModel]
    """All models, downloaded or not."""
    downloads: list[str] = []
    """Models whose download runs or is paused: their partial files are wanted."""
    used_files: list[str] = []
    """What models with a worker were loaded from."""
    used_backends: list[str] = []
    """``RECIPE/BACKEND`` of each model with a worker: also older versions may be at work."""
    only_unused: bool = False
    """Report only what nothing uses."""
    remove: bool = False
    prompt_caches: bool = False


@control_message
class DiskJobDone(msgspec.Struct, frozen=True):
    """Job → supervisor: this was found or removed."""

    report: DiskReport


@control_message
class DiskJobFailed(msgspec.Struct, frozen=True):
    """Job → supervisor: the disk could not be read."""

    failure: Failure
