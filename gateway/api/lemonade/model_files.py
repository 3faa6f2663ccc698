"""``pull``, ``pull/variants``, ``models/register``, ``models/{id}/files`` and ``delete``: which models are on this machine, and what a hub has."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, CHANGE, CONFLICT, MODEL, NO_MODEL
from gateway.api.common.progress_events import PROGRESS_STREAM, CompleteEvent, ProgressWriter
from gateway.api.common.request_fields import MAX_NAME_LENGTH, chosen_options
from gateway.api.common.routes import HttpCaller, Progressing, route
from gateway.api.common.server_sent_events import event
from gateway.api.lemonade.downloads import DownloadJob
from gateway.api.lemonade.load import NAME_FIELDS, Name, NamedModel
from protocol.config.api_keys import Scope
from protocol.failures import Code, Failure, invalid, printable
from protocol.messages.model_details import ConfiguredModel, ShowModel
from protocol.messages.model_files import (
    Deleted,
    DeleteModel,
    DownloadReport,
    ListVariants,
    ModelFile,
    Pulled,
    PullModel,
    RegisterModel,
    Registration,
    Variants,
)
from protocol.messages.models import ModelEntry
from protocol.models import checkpoints, repository_files
from protocol.models.checkpoints import HubCheckpoint
from protocol.models.recipes import DEFAULT_RECIPE, OptionValue
from protocol.wire import envelope

HUGGING_FACE: Final = "huggingface"
_LABEL_BY_SWITCH: Final = {
    "reasoning": "reasoning",
    "vision": "vision",
    "embedding": "embeddings",
    "reranking": "reranking",
}
"""Switch in a request → the label that it gives the model."""
_File = Annotated[Any, Meta(extra_json_schema={"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH})]
_Registry = Annotated[str, Meta(extra_json_schema={"enum": [HUGGING_FACE]})]
_MODEL: Final = {"model_name": "SmolLM2-135M-Instruct-GGUF"}


class LemonadePullRequest(NamedModel, kw_only=True):
    """A registered model, or a new one: `user.NAME` with its checkpoint and recipe."""

    checkpoint: Name | None = None
    checkpoints: dict[str, _File] | None = None
    recipe: Name | None = None
    mmproj: Name | None = None
    reasoning: bool | None = None
    vision: bool | None = None
    embedding: bool | None = None
    reranking: bool | None = None
    recipe_options: dict[str, OptionValue | None] | None = None
    image_defaults: dict[str, OptionValue | None] | None = None
    """Of a model for pictures: what requests get that do not say it themselves. The same options in `recipe_options` replace these."""
    source: _Registry | None = None
    registry_source: _Registry | None = None
    stream: bool | None = None
    subscribe: bool | None = None
    """Only with `stream`: false answers at once with the download, and `downloads` shows its progress."""

    def check_source(self) -> None:
        """Raise ``invalid_request``, naming the field, for a model registry other than Hugging Face's."""
        for field in ("source", "registry_source"):
            if getattr(self, field) not in (None, "", HUGGING_FACE):
                raise invalid(
                    f"`{field}` must be {HUGGING_FACE}: this server downloads models from no other registry", field
                )

    @property
    def registration(self) -> Registration | None:
        """The model that the request registers, None if it only names one; raises ``invalid_request``.

        The supervisor checks the name, the recipe and the checkpoint.
        """
        labels = [label for switch, label in _LABEL_BY_SWITCH.items() if getattr(self, switch)]
        files = {role: name for role, name in (self.checkpoints or {}).items() if name}
        if not all(isinstance(name, str) and len(name) <= MAX_NAME_LENGTH for name in files.values()):
            raise invalid("`checkpoints` must be an object of strings", "checkpoints")
        options = chosen_options(self.image_defaults or {}) | chosen_options(self.recipe_options or {})
        if not any((self.checkpoint, self.recipe, self.mmproj, labels, files, options)):
            return None
        if not self.name.startswith("user."):
            field = "model_name" if self.model_name else "model"
            raise invalid(f"`{field}` of a model that is registered must begin with `user.`", field)
        if not self.checkpoint and not files:
            raise invalid("`checkpoint` is required to register a model", "checkpoint")
        if not self.recipe:
            raise invalid("`recipe` is required to register a model", "recipe")
        return Registration(self.checkpoint or "", self.recipe, self.mmproj or "", labels, files, options)


class PulledModel(msgspec.Struct):
    """The model is downloaded."""

    status: Literal["success"]
    message: str
    model_name: str


class PullEventWriter(ProgressWriter):
    """The events of one download."""

    def complete(self, report: bytes) -> bytes:
        """Return the documented ``complete`` event."""
        files = envelope.unpack_payload(report, Pulled).files
        return event("complete", CompleteEvent(file_index=files, total_files=files))


class RegisteredModel(msgspec.Struct):
    """The model is registered. It is downloaded by a pull, or by the first request."""

    status: Literal["success"]
    model_name: str
    canonical_model_name: str
    """The same: this server lists models of users as `user.NAME`."""
    downloaded: bool
    """Whether its files are here already."""
    labels: list[str]


class ModelFilesQuery(msgspec.Struct):
    """A model by one of its names."""

    model_id: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    include_paths: bool = False
    """For administrators: also where each file is."""


class ListedFile(msgspec.Struct):
    """A file of a model."""

    name: str
    role: str
    """`main`, `mmproj`, or another part of the model."""
    size_bytes: int
    exists: bool
    path: str | msgspec.UnsetType = msgspec.UNSET


class ListedFiles(msgspec.Struct):
    """The files of a model that are on this machine."""

    model_id: str
    files: list[ListedFile]


class VariantsQuery(msgspec.Struct):
    """The repository: `owner/repo`."""

    checkpoint: str


class DeleteRequest(NamedModel, kw_only=True):
    """A model."""

    dry_run: bool | None = None
    """Remove nothing; the answer's `removed` says what a deletion removes."""


class DeletedModel(msgspec.Struct):
    """The removed files, and the models that still use others."""

    status: Literal["success"]
    message: str
    model_name: str
    files_removed: int
    kept_for: list[str]
    removed: list[ModelFile] | msgspec.UnsetType = msgspec.UNSET
    """Only for a dry run: the files that a deletion removes."""


@route(
    "POST",
    "pull",
    changes=True,
    needs=NAME_FIELDS,
    stream=PROGRESS_STREAM,
    failures=CHANGE,
    examples={
        "a model of the catalogue": {**_MODEL, "stream": True},
        "a new one": {
            "model_name": "user.Phi-4-mini",
            "checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M",
            "recipe": DEFAULT_RECIPE,
        },
    },
)
def pull_model(caller: HttpCaller, request: LemonadePullRequest) -> PulledModel | DownloadJob | Progressing:
    """Downloads a model, and registers it first if the request describes a new one.

    A client that hangs up does not stop the download.
    """
    caller.context.model = request.name
    request.check_source()
    call = partial(PullModel, model=request.name, registration=request.registration)
    if request.stream and request.subscribe is False:
        return DownloadJob.of(caller.ask(partial(call, detached=True), DownloadReport))
    if request.stream:
        return Progressing(partial(call, progress=True), PullEventWriter())
    pulled = caller.ask(call, Pulled)
    return PulledModel("success", f"Installed model: {pulled.name}", pulled.name)


@route(
    "POST",
    "models/register",
    changes=True,
    needs=NAME_FIELDS,
    failures=BODY | CONFLICT,
    examples={
        "one": {
            "model_name": "user.Phi-4-mini",
            "checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M",
            "recipe": DEFAULT_RECIPE,
        }
    },
)
def register_model(caller: HttpCaller, request: LemonadePullRequest) -> RegisteredModel:
    """Registers a model without downloading it, or changes the labels and options of one."""
    caller.context.model = name = request.name
    request.check_source()
    registration = request.registration
    if registration is None:
        raise invalid("`checkpoint` is required to register a model", "checkpoint")
    entry = caller.ask(lambda number: RegisterModel(number, name, registration), ModelEntry)
    return RegisteredModel("success", entry.id, entry.id, entry.downloaded, entry.labels)


@route("GET", "models/{model_id:path}/files", failures=NO_MODEL)
def list_model_files(caller: HttpCaller, query: ModelFilesQuery) -> ListedFiles:
    """Lists the files of a model that are on this machine."""
    if query.include_paths and not caller.context.is_admin:
        raise Failure(Code.FORBIDDEN, "`include_paths` needs a key for administrators", param="include_paths").raised()
    found = caller.ask(lambda number: ShowModel(number, query.model_id), ConfiguredModel)
    if not caller.context.may_use(found.entry.id):
        raise Failure(Code.MODEL_NOT_FOUND, f"Model {query.model_id} has not been found", model=query.model_id).raised()
    return ListedFiles(
        found.entry.id,
        [
            ListedFile(
                name=each.path.rpartition("/")[2],
                role=each.part or ("mmproj" if repository_files.is_projector(each.path) else "main"),
                size_bytes=each.size,
                exists=True,
                path=each.path if query.include_paths else msgspec.UNSET,
            )
            for each in found.files
        ],
    )


# A change for pages of other sites, any of which could make the server ask hubs; a key for inference may do it.
@route("GET", "pull/variants", changes=True, scope=Scope.INFERENCE, action="ask a hub", failures=MODEL)
def list_variants(caller: HttpCaller, query: VariantsQuery) -> Variants:
    """Lists what a repository of a hub has to download.

    At most five quantizations, the best known first, and the fields with which to register one.
    """
    checkpoint, key = checked_repository(query.checkpoint), caller.context.api_key
    limited = key.name if key is not None and not caller.context.is_admin else ""
    return caller.ask(lambda number: ListVariants(number, checkpoint, limited), Variants)


def checked_repository(given: str) -> str:
    """Return ``given`` if it names a repository of a hub; raises ``invalid_request``."""
    checkpoint = checkpoints.parse(given) if "/" in given and len(given) <= MAX_NAME_LENGTH else None
    if not isinstance(checkpoint, HubCheckpoint) or checkpoint.variant:
        shown = printable(given)
        raise invalid(f"`checkpoint` must be owner/repo of a Hugging Face hub, not {shown!r}", "checkpoint")
    return given


@route(
    "POST",
    "delete",
    changes=True,
    needs=NAME_FIELDS,
    failures=CHANGE,
    examples={"one": _MODEL, "dry run": {**_MODEL, "dry_run": True}},
)
def delete_model(caller: HttpCaller, request: DeleteRequest) -> DeletedModel:
    """Removes a model and the files that no other model uses.

    It is unloaded, and unregistered if a user registered it.
    """
    caller.context.model = name = request.name
    dry_run = bool(request.dry_run)
    deleted = caller.ask(lambda number: DeleteModel(number, name, dry_run=dry_run), Deleted)
    if dry_run:
        message = f"{deleted.name} can be deleted"
        return DeletedModel("success", message, deleted.name, 0, deleted.kept_for, deleted.removed)
    return DeletedModel("success", f"Deleted model: {deleted.name}", deleted.name, deleted.files, deleted.kept_for)
