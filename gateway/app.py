"""The whole table of routes."""

from __future__ import annotations

from typing import Any, Final

import falcon
from falcon.routing import CompiledRouter

from gateway.api.common.probes import LivenessResource, ReadinessResource
from gateway.api.lemonade import delete, health, install, load, params, pull, pull_variants, system_info
from gateway.api.llamacpp import reranking_and_slots
from gateway.api.openai import audio, completions, images, models, unsupported
from gateway.bus.session import SupervisorSession
from gateway.http import error_responses, middleware
from gateway.logs.stream import LogStreamResource

PREFIXES: Final = ("/v1", "/api/v1", "/v0", "/api/v0")
PREVIEW_PREFIXES: Final = frozenset({"/v0", "/api/v0"})
"""Where the preview's own verbs are taken too."""


class Router(CompiledRouter):
    """GET routes answer HEAD."""

    def map_http_methods(self, resource: object, **kwargs: Any) -> Any:
        """Let HEAD go where GET goes, unless the resource says otherwise."""
        methods: Any = super().map_http_methods(resource, **kwargs)
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
        return methods


def create_app(session: SupervisorSession) -> falcon.App[Any, Any]:
    """Return the WSGI application."""
    app: falcon.App[Any, Any] = falcon.App(router=Router())
    for each in middleware.create_middleware(session):
        app.add_middleware(each)
    app.req_options.strip_url_path_trailing_slash = True
    error_responses.install_error_handlers(app)

    app.add_route("/live", LivenessResource())
    app.add_route("/health", ReadinessResource(session))
    app.add_route("/logs/stream", LogStreamResource(session))
    app.add_route("/realtime", unsupported.realtime())

    versioned: dict[str, object] = {
        "chat/completions": completions.ChatCompletionsResource(session),
        "completions": completions.CompletionsResource(session),
        "embeddings": completions.EmbeddingsResource(session),
        "reranking": reranking_and_slots.RerankingResource(session),
        "rerank": reranking_and_slots.RerankingResource(session),
        "images/generations": images.ImageGenerationsResource(session),
        "images/edits": images.ImageEditsResource(session),
        "images/variations": unsupported.variations(),
        "audio/speech": unsupported.speech(),
        "audio/transcriptions": audio.TranscriptionsResource(session),
        "audio/translations": audio.TranslationsResource(session),
        "realtime": unsupported.realtime(),
        "slots": reranking_and_slots.SlotsResource(session),
        "slots/{slot_id}": reranking_and_slots.SlotResource(session),
        "models": models.ModelsResource(session),
        "models/{model_id:path}": models.ModelResource(session),
        "load": load.LoadResource(session),
        "unload": load.UnloadResource(session),
        "delete": delete.DeleteResource(session),
        "params": params.ParamsResource(session),
        "pull": pull.PullResource(session),
        "pull/variants": pull_variants.PullVariantsResource(session),
        "health": health.HealthResource(session),
        "stats": health.StatsResource(session),
        "install": install.InstallResource(session),
        "uninstall": install.UninstallResource(session),
        "system-info": system_info.SystemInfoResource(session),
    }
    preview: dict[str, object] = {
        **versioned,
        "models": models.PreviewModelsResource(session),
        "load": load.PreviewLoadResource(session),
        "unload": load.PreviewUnloadResource(session),
    }
    for prefix in PREFIXES:
        for path, resource in (preview if prefix in PREVIEW_PREFIXES else versioned).items():
            app.add_route(f"{prefix}/{path}", resource)
    return app
