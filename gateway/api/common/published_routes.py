"""Routes that OpenAI, Anthropic, Ollama or Lemonade publish and this server does not have: 501 with an alternative, and no 404.

Only a request that no route takes comes here, so they cost the others nothing. A path that a dialect serves is never refused here.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final, NoReturn

import falcon

from protocol.failures import Code, Failure

_CONVERSATION: Final = "use responses, where previous_response_id continues a conversation that this server has stored"
_AGENTS: Final = "run the agent on the client's side, with tools of responses, chat/completions or messages"
_LIVE: Final = "open the WebSocket /v1/realtime for live audio, with an API key that `lemonbus keys add` makes"
_KEYS: Final = "`lemonbus keys` makes keys and sets their limits, and `lemonbus usage` counts what they have used"
_SECRETS: Final = "keep them where the client's tools run"

_Families = dict[str, tuple[str, str]]
"""Path below a prefix → what is refused (a subject with its verb), and what to do instead. It covers all paths below it."""

ANTHROPIC_FAMILIES: Final[_Families] = {
    "agents": ("agents are", _AGENTS),
    "complete": ("Anthropic's text completions are", "use messages, or OpenAI's completions"),
    "compliance": ("reviews of an organization are", _KEYS),
    "deployment_runs": ("deployments of agents are", _AGENTS),
    "deployments": ("deployments of agents are", _AGENTS),
    "dreams": ("dreams of agents are", _AGENTS),
    "environments": ("environments of agents are", _AGENTS),
    "memory_stores": ("memory stores of agents are", "let the client keep its memory, as a tool"),
    "organizations": ("the administration of an organization is", _KEYS),
    "sessions": ("sessions of agents are", _AGENTS),
    "skills": ("skills are", "put their text into the system prompt, and let the client run their programs as tools"),
    "tunnels": ("tunnels are", "connect the client to servers of tools itself"),
    "user_profiles": ("profiles of users are", _KEYS),
    "vaults": ("vaults are", _SECRETS),
}
"""Those of Anthropic, some of which OpenAI has as well. Below each version prefix."""
_OPENAI_FAMILIES: Final[_Families] = {
    "assistants": ("assistants are", _CONVERSATION),
    "audio/voice_consents": ("voices of one's own are", "GET audio/voices lists the voices that models have"),
    "audio/voices": ("voices of one's own are", "GET audio/voices lists the voices that models have"),
    "chat/completions": ("stored chat completions are", _CONVERSATION),
    "chatkit": ("ChatKit's sessions and threads are", _CONVERSATION),
    "containers": ("containers are", "let the client run the code that a model writes, as a tool"),
    "content_provenance_checks": ("checks where content comes from are", "no model here does that"),
    "conversations": ("conversations are", _CONVERSATION),
    "decisions": ("decisions are", "use chat/completions with a response_format"),
    "evals": ("evaluations are", "a program such as lm-evaluation-harness evaluates a model through completions"),
    "fine_tuning": ("fine-tuning is", "train elsewhere, and add the result: `lemonbus pull`, or extra_models_dir"),
    "live/sessions": ("live sessions are", _LIVE),
    "organization": ("the administration of an organization is", _KEYS),
    "projects": ("the administration of projects is", _KEYS),
    "realtime": ("sessions, secrets and calls of realtime are", _LIVE),
    "safety": ("alerts about safety are", "check texts by moderations"),
    "systemone": ("System One models are", "use chat/completions with a response_format"),
    "threads": ("threads are", _CONVERSATION),
    "uploads": ("uploads in parts are", "send the file whole: POST files for a batch, or in its request"),
    "vector_stores": ("vector stores are", "make vectors by embeddings, and keep them in a database of your own"),
    "videos": ("videos are", "no recipe makes them; images/generations makes pictures"),
    "webhook_endpoints": ("webhooks are", "read the stream of a response, or ask for it again"),
    "webhook_event_types": ("webhooks are", "read the stream of a response, or ask for it again"),
}
_OLLAMA_FAMILIES: Final[_Families] = {
    "experimental": ("Ollama's experimental routes are", "see /docs for what is served"),
    "me": ("accounts at ollama.com are", "no account is needed here"),
    "signin": ("accounts at ollama.com are", "no account is needed here"),
    "signout": ("accounts at ollama.com are", "no account is needed here"),
    "web_fetch": ("pages of the web are", "let the client fetch them, as a tool"),
    "web_search": ("searches of the web are", "let the client search, as a tool"),
}
"""Below ``/api``."""


_LEMONADE_FAMILIES: Final[_Families] = {
    "3d/generations": ("meshes are", "no recipe makes them; images/generations makes pictures"),
    "audio/generations": ("music and effects are", "no recipe makes them; audio/speech speaks a text"),
    "classify": ("classifiers are", "use chat/completions with a response_format, or moderations"),
    "cloud": (
        "keys of clouds are",
        "a section with `url` and `api_key` in the configuration file is a model of a cloud",
    ),
    "docs": ("Lemonade's pages are", "/docs shows every route of this server, and /openapi.json describes them"),
    "images/upscale": ("larger pictures are", "no recipe makes them; ask images/generations for the size"),
    "install/dry-run": (
        "dry runs of installations are",
        "system-info says what can be installed, and in which version",
    ),
    "jobs": ("jobs are", "let the client send the requests one after the other, or use batches"),
    "registry/search": ("searches of hubs are", "pull/variants lists the models of a repository"),
    "routing": ("routing by rules is", "let the client name the model; aliases give one name to another model"),
}
"""Those of Lemonade's own API. Below each version prefix."""
_LEMONADE_INTERNAL: Final[_Families] = {
    "cleanup-cache": (
        "Lemonade's removal of unused files is",
        "`lemonbus du` shows them, and `lemonbus prune` removes them",
    ),
    "config": (
        "Lemonade's configuration is",
        "/internal/settings shows the settings of this server, and the source of each value",
    ),
    "models/sync": ("updates of models are", "models/check-updates finds them; delete and pull a model to update it"),
    "routes": ("Lemonade's list of routes is", "/openapi.json describes every route"),
    "set": ("changes of settings are", "change the configuration file, then POST /internal/reload"),
    "shutdown": ("a stop by HTTP is", "stop the service, or end `lemonbus serve` by SIGTERM"),
    "simulate-vram-pressure": ("a simulation of used memory is", "a load with dry_run says what it would unload"),
    "telemetry": ("Lemonade's traces are", "/metrics and /logs/stream show what happens"),
}
"""Those of its clients. Below ``/internal``."""
_LEMONADE_ROOT: Final[_Families] = {
    "mcp": ("Lemonade's MCP server is", "let the client call this server's API as a tool")
}


def add_published_routes(app: falcon.App[Any, Any]) -> None:
    """Let ``app`` answer every request for such a path, whatever its method, unless it has a route for the path."""
    for prefix, families in (
        (r"(?:/api)?/v[01]", ANTHROPIC_FAMILIES | _OPENAI_FAMILIES | _LEMONADE_FAMILIES),
        ("/api", _OLLAMA_FAMILIES),
        ("/internal", _LEMONADE_INTERNAL),
        ("", _LEMONADE_ROOT),
    ):
        below = re.compile(rf"{prefix}/(?P<family>{'|'.join(families)})(?:/|$)")
        app.add_sink(partial(_refuse, families), below)


def _refuse(families: _Families, _req: falcon.Request, _resp: falcon.Response, family: str) -> NoReturn:
    what, cure = families[family]
    raise Failure(Code.UNSUPPORTED, f"{what} not served here: {cure}").raised()
