"""What Lemonade's routes take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.common.operations import BODY, CHANGE, EVENT_STREAM, MODEL, Documentation, Operation, Stream
from gateway.api.lemonade import delete, health, install, load, params, pin, pull, pull_variants, system_info
from gateway.api.lemonade import documented_types as types
from gateway.logs.stream import LogStreamResource
from protocol.failures import Code, Failure
from protocol.messages.model_files import Variants
from protocol.models.recipes import DEFAULT_RECIPE

_PROGRESS: Final = Stream(
    EVENT_STREAM,
    'event: progress\ndata: {"file":"model.gguf","file_index":1,"total_files":1,"percent":50}\n\n'
    'event: complete\ndata: {"file_index":1,"total_files":1,"percent":100}\n\n',
)
_MODEL: Final = "SmolLM2-135M-Instruct-GGUF"
_NAME: Final = ("model_name", "model")
_LOAD: Final = Operation(
    "Loads a model, after downloading it if necessary.",
    body=types.LemonadeLoadRequest,
    needs=_NAME,
    answer=types.LoadAnswer,
    failures=CHANGE,
    examples={"with options": {"model_name": _MODEL, "ctx_size": 4096}},
)
_UNLOAD: Final = Operation(
    "Unloads a model, or all of them if the request names none.",
    body=types.UnloadRequest,
    body_required=False,
    answer=types.UnloadedModels,
    failures=CHANGE,
    examples={"one": {"model_name": _MODEL}, "all": {}},
)
_BY_GET: Final[dict[str, Any]] = {"body": None, "needs": (), "examples": {}, "query": types.NamedModelQuery}
_LOG_READER: Final = frozenset({Failure(Code.INVALID_REQUEST, "", status=426), Failure(Code.RATE_LIMITED, "")})

DOCUMENTATION: Final = Documentation(
    "Lemonade",
    "Loading, downloading and deleting models, backends, sampling defaults, and the state of the server.",
    {
        load.LoadResource: {"POST": _LOAD},
        load.PreviewLoadResource: {"POST": _LOAD, "GET": _LOAD._replace(**_BY_GET)},
        load.UnloadResource: {"POST": _UNLOAD},
        load.PreviewUnloadResource: {"POST": _UNLOAD, "GET": _UNLOAD._replace(**_BY_GET)},
        pin.PinResource: {
            "POST": Operation(
                "Keeps a loaded model from being evicted for another one, or lets it be evicted again.",
                body=types.PinRequest,
                needs=_NAME,
                answer=types.PinAnswer,
                failures=CHANGE,
                examples={"one": {"model_name": _MODEL, "pinned": True}},
            )
        },
        delete.DeleteResource: {
            "POST": Operation(
                "Removes a model and the files that no other model uses.",
                body=types.NamedModel,
                needs=_NAME,
                answer=types.DeletedModel,
                failures=CHANGE,
                examples={"one": {"model_name": _MODEL}},
            )
        },
        params.ParamsResource: {
            "GET": Operation("Shows the sampling defaults.", answer=types.ParamsAnswer),
            "POST": Operation(
                "Sets sampling defaults of all models.",
                body=types.ParamsRequest,
                body_required=False,
                answer=types.ParamsAnswer,
                failures=BODY,
                examples={"two": {"temperature": 0.2, "max_length": 1000}},
            ),
        },
        pull.DownloadsResource: {
            "GET": Operation("Lists downloads that run or ended within half a minute.", answer=list[types.DownloadJob])
        },
        pull.PullResource: {
            "POST": Operation(
                "Downloads a model, and registers it first if the request describes a new one.",
                body=types.LemonadePullRequest,
                needs=_NAME,
                answer=(types.PulledModel, types.DownloadJob),
                stream=_PROGRESS,
                failures=CHANGE,
                examples={
                    "a model of the catalogue": {"model_name": _MODEL, "stream": True},
                    "a new one": {
                        "model_name": "user.Phi-4-mini",
                        "checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M",
                        "recipe": DEFAULT_RECIPE,
                    },
                },
            )
        },
        pull_variants.PullVariantsResource: {
            "GET": Operation(
                "Lists what a repository of a hub has to download.",
                answer=Variants,
                query=types.VariantsQuery,
                failures=MODEL,
            )
        },
        health.HealthResource: {"GET": Operation("Shows the state of the server.", answer=types.ServerHealth)},
        health.StatsResource: {
            "GET": Operation(
                "Shows tokens and times of the last finished request.",
                answer=types.RequestStats,
                query=types.StatsQuery,
                failures=MODEL,
            )
        },
        install.InstallResource: {
            "POST": Operation(
                "Installs or updates a backend.",
                body=types.InstallRequest,
                answer=types.BackendAnswer,
                stream=_PROGRESS,
                failures=CHANGE,
                examples={"with progress": {"recipe": DEFAULT_RECIPE, "backend": "vulkan", "stream": True}},
            )
        },
        install.UninstallResource: {
            "POST": Operation(
                "Removes a backend; models that use it are unloaded.",
                body=types.BackendRequest,
                answer=types.BackendAnswer,
                failures=CHANGE,
                examples={"one": {"recipe": DEFAULT_RECIPE, "backend": "vulkan"}},
            )
        },
        system_info.SystemInfoResource: {
            "GET": Operation(
                "Shows the machine and the recipes that run on it.",
                answer=types.SystemInfoAnswer,
                query=types.SystemInfoQuery,
            )
        },
        LogStreamResource: {
            "GET": Operation(
                "Follows the log over a WebSocket: one JSON object per message.",
                query=types.LogQuery,
                failures=_LOG_READER,
                status=101,
            )
        },
    },
)
