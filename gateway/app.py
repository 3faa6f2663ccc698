"""The WSGI application: every dialect with its routes and errors, and the middleware in front of them.

OpenAI     /v1 /api/v1 /v0 /api/v0: chat/completions, completions, embeddings, images, audio, models, moderations; /realtime
Responses  the same prefixes: OpenAI's responses, and those that are stored
Lemonade   the same prefixes: load, unload, pin, pull, downloads, delete, install, uninstall, params, health, stats, system-info,
           system-stats, models/check-updates, files and options of models; /logs/stream; /internal/aliases
Anthropic  the same prefixes: messages, messages/count_tokens
llama.cpp  the same prefixes, and none: tokenize, detokenize, apply-template, reranking, slots
           without a prefix only: completion, infill, embedding, props
Mullama    /api: generate, chat, embeddings, models, defaults, system/status; /metrics; its error form for all of /api
Ollama     /api: embed, tags, ps, show, version and its other names for the same operations
Operator   /internal: configuration, settings, keys, reload, upgrade, drain, undrain
To no dialect belong /live (/livez, /healthz), /health and /readyz, for process monitors; /openapi.json and /docs, which describe all routes; and / with
/page/…, the page for browsers. What OpenAI, Anthropic, Ollama and Lemonade publish beyond this is refused
by name (`api/common/published_routes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import falcon

from gateway import middleware
from gateway.access.cors import CorsPolicy
from gateway.access.scopes import Scope, declared_scope
from gateway.api.anthropic.dialect import AnthropicDialect
from gateway.api.common import probes
from gateway.api.common.dialect import Dialect, endpoint_of
from gateway.api.common.published_routes import add_published_routes
from gateway.api.common.route_resource import resources
from gateway.api.lemonade.dialect import LemonadeDialect
from gateway.api.llamacpp.dialect import LlamaCppDialect
from gateway.api.mullama.dialect import MullamaDialect
from gateway.api.ollama.dialect import OllamaDialect
from gateway.api.openai.dialect import OpenAIDialect
from gateway.api.operator.dialect import OperatorDialect
from gateway.api.responses.dialect import ResponsesDialect
from gateway.bus.session import SupervisorSession
from gateway.http import errors
from gateway.http.errors import ErrorFormats
from gateway.http.request_counts import RouteLabels
from gateway.http.router import Router
from gateway.openapi.routes import DOCUMENT_PATH, DocumentResource, RouteTable
from gateway.page.resources import page_resources

DIALECTS: Final[tuple[Dialect, ...]] = (
    OpenAIDialect(),
    ResponsesDialect(),
    LemonadeDialect(),
    LlamaCppDialect(),
    AnthropicDialect(),
    MullamaDialect(),
    OllamaDialect(),
    OperatorDialect(),
)
"""All supported dialects."""
SERVER: Final = "server"
"""The ``dialect`` in metrics of routes that belong to none."""


class GatewayApp(falcon.App[Any, Any]):
    """The application, and the form and headers of errors for requests that never reach it."""

    error_formats: ErrorFormats
    error_headers: Mapping[str, str]


def create_app(session: SupervisorSession, dialects: Sequence[Dialect] = DIALECTS) -> GatewayApp:
    """Return the WSGI application; raises ValueError if two dialects have the same route."""
    error_formats = ErrorFormats(errors.ErrorFormat(), dialects)
    cors = CorsPolicy(session.settings.cors_origins)
    app = GatewayApp(router=Router(), middleware=middleware.create_middleware(session, error_formats, cors))
    app.req_options.strip_url_path_trailing_slash = True
    app.error_formats = error_formats
    app.error_headers = cors.headers("")
    errors.install_error_handlers(app, error_formats)
    table = RouteTable(own := dict[str, object](), [(each, each.routes(session)) for each in dialects], error_formats)
    own |= {**resources(session, probes), DOCUMENT_PATH: DocumentResource(table), **page_resources()}
    labels = {path: RouteLabels(endpoint_of(path), SERVER) for path in own}
    routes = dict(own)
    for dialect, its_routes in table.dialects:
        for path, resource in its_routes.items():
            if path in routes:
                raise ValueError(f"two dialects have the route {path}")
            routes[path] = resource
            inference = declared_scope(resource, "POST") is Scope.INFERENCE
            labels[path] = RouteLabels(endpoint_of(path), dialect.name, inference)
    session.request_counts.routes = labels
    for path, resource in routes.items():
        app.add_route(path, resource)
    add_published_routes(app)
    return app
