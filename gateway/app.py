"""The whole table of routes."""

from __future__ import annotations

from typing import Any, Final

import falcon
from falcon.routing import CompiledRouter

from gateway import faults, middleware
from gateway.dialects import (
    audio,
    deletes,
    health,
    images,
    installs,
    llamacpp,
    loads,
    models,
    openai,
    params,
    pulls,
    systeminfo,
    unserved,
    variants,
)
from gateway.house import House
from gateway.logstream import LogStream
from gateway.probes import Health, Live

PREFIXES: Final = ("/v1", "/api/v1", "/v0", "/api/v0")
PREVIEW: Final = frozenset({"/v0", "/api/v0"})
"""Where the preview's own verbs are taken too."""


class Router(CompiledRouter):
    """GET routes answer HEAD."""

    def map_http_methods(self, resource: object, **kwargs: Any) -> Any:
        """Let HEAD go where GET goes, unless the resource says otherwise."""
        methods: Any = super().map_http_methods(resource, **kwargs)
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
        return methods


def create_app(house: House) -> falcon.App[Any, Any]:
    """Return the WSGI application."""
    app: falcon.App[Any, Any] = falcon.App(router=Router())
    for each in middleware.every(house):
        app.add_middleware(each)
    app.req_options.strip_url_path_trailing_slash = True
    faults.install(app)

    app.add_route("/live", Live())
    app.add_route("/health", Health(house))
    app.add_route("/logs/stream", LogStream(house))
    app.add_route("/realtime", unserved.realtime())

    versioned: dict[str, object] = {
        "chat/completions": openai.ChatCompletions(house),
        "completions": openai.Completions(house),
        "embeddings": openai.Embeddings(house),
        "reranking": llamacpp.Reranking(house),
        "rerank": llamacpp.Reranking(house),
        "images/generations": images.Generations(house),
        "images/edits": images.Edits(house),
        "images/variations": unserved.variations(),
        "audio/speech": unserved.speech(),
        "audio/transcriptions": audio.Transcriptions(house),
        "audio/translations": audio.Translations(house),
        "realtime": unserved.realtime(),
        "slots": llamacpp.Slots(house),
        "slots/{slot_id}": llamacpp.Slot(house),
        "models": models.Models(house),
        "models/{model_id:path}": models.Model(house),
        "load": loads.Load(house),
        "unload": loads.Unload(house),
        "delete": deletes.Delete(house),
        "params": params.Params(house),
        "pull": pulls.Pull(house),
        "pull/variants": variants.PullVariants(house),
        "health": health.Health(house),
        "stats": health.Stats(house),
        "install": installs.Install(house),
        "uninstall": installs.Uninstall(house),
        "system-info": systeminfo.Info(house),
    }
    preview: dict[str, object] = {
        **versioned,
        "models": models.PreviewModels(house),
        "load": loads.PreviewLoad(house),
        "unload": loads.PreviewUnload(house),
    }
    for prefix in PREFIXES:
        for path, resource in (preview if prefix in PREVIEW else versioned).items():
            app.add_route(f"{prefix}/{path}", resource)
    return app
