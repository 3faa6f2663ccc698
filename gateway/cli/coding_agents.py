"""Coding agents of other makers: what each must be told so that it talks to a lemonbus server, by environment and command line alone.

No file of an agent is read or written. The pages of docs/clients say with which versions this was tried.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.config.api_keys import KEY_VARIABLES

_KEY_VARIABLE: Final = KEY_VARIABLES["api_key"][0]
_NO_KEY: Final = "lemonbus"
"""What an agent that insists on a key sends to a server that needs none."""


class Endpoint(NamedTuple):
    """What an agent is to talk to."""

    url: str
    """Of the server, without a version prefix."""
    key: str
    """Empty if the server needs none."""
    model: str
    context: int
    """Tokens of each request, prompt and answer together; 0: unknown."""

    @property
    def answer_tokens(self) -> int:
        """How long an answer may be, so that the prompt keeps most of the context."""
        return min(self.context // 4, 32_000)


class AgentStart(NamedTuple):
    """How an agent is started."""

    environment: dict[str, str]
    """Variables to be set."""
    removed: frozenset[str] = frozenset()
    """Variables that would lead the agent elsewhere."""
    arguments: tuple[str, ...] = ()
    """Before those of the user."""


class CodingAgent(NamedTuple):
    """An agent."""

    program: str
    install: str
    """The command that installs it."""
    least_context: int
    """Tokens without which it is of no use: several times the prompt that it begins with."""
    start: Callable[[Endpoint], AgentStart]


def _claude(to: Endpoint) -> AgentStart:
    tiers = ("OPUS", "SONNET", "HAIKU", "FABLE")  # for its own purposes, it asks for a model by its tier
    environment = {
        "ANTHROPIC_BASE_URL": to.url,
        "ANTHROPIC_AUTH_TOKEN": to.key or _NO_KEY,
        "ANTHROPIC_MODEL": to.model,
        **{f"ANTHROPIC_DEFAULT_{tier}_MODEL": to.model for tier in tiers},
        "CLAUDE_CODE_SUBAGENT_MODEL": to.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # It would begin each prompt with other bytes, so that no engine could use its prompt cache.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    }
    if to.context:
        environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(to.context)
        environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(to.answer_tokens)
    removed = {"ANTHROPIC_API_KEY", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_API_BASE_URL"}
    removed |= {f"CLAUDE_CODE_USE_{cloud}" for cloud in ("BEDROCK", "VERTEX", "FOUNDRY", "MANTLE", "ANTHROPIC_AWS")}
    return AgentStart(environment, frozenset(removed))


def _codex(to: Endpoint) -> AgentStart:
    provider = {"name": "lemonbus", "base_url": f"{to.url}/v1", "env_key": _KEY_VARIABLE, "wire_api": "responses"}
    # A JSON string is also one of TOML.
    table = ",".join(f"{name}={json.dumps(value)}" for name, value in provider.items())
    settings = [f"model={json.dumps(to.model)}", 'model_provider="lemonbus"', f"model_providers.lemonbus={{{table}}}"]
    settings += [f"model_context_window={to.context}"] if to.context else []
    arguments = tuple(word for setting in settings for word in ("-c", setting))
    return AgentStart({_KEY_VARIABLE: to.key or _NO_KEY}, arguments=arguments)


def _opencode(to: Endpoint) -> AgentStart:
    limit = {"limit": {"context": to.context, "output": to.answer_tokens}} if to.context else {}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "lemonbus",
        "options": {"baseURL": f"{to.url}/v1", "apiKey": f"{{env:{_KEY_VARIABLE}}}"},
        "models": {to.model: {"name": to.model, **limit}},
    }
    model = f"lemonbus/{to.model}"
    configuration = {"provider": {"lemonbus": provider}, "model": model, "small_model": model}
    return AgentStart({"OPENCODE_CONFIG_CONTENT": json.dumps(configuration), _KEY_VARIABLE: to.key or _NO_KEY})


def _aider(to: Endpoint) -> AgentStart:
    model = f"openai/{to.model}"
    environment = {
        "AIDER_OPENAI_API_BASE": f"{to.url}/v1",
        "AIDER_OPENAI_API_KEY": to.key or _NO_KEY,
        **dict.fromkeys(("AIDER_MODEL", "AIDER_WEAK_MODEL", "AIDER_EDITOR_MODEL"), model),
        # It knows no model of this server, and would ask whether to go on.
        "AIDER_SHOW_MODEL_WARNINGS": "false",
    }
    if to.context:
        environment["AIDER_MAX_CHAT_HISTORY_TOKENS"] = str(to.answer_tokens)
    return AgentStart(environment)


def _qwen(to: Endpoint) -> AgentStart:
    environment = {
        "OPENAI_BASE_URL": f"{to.url}/v1",
        "OPENAI_API_KEY": to.key or _NO_KEY,
        "OPENAI_MODEL": to.model,
    }
    return AgentStart(environment, arguments=("--auth-type", "openai"))


AGENTS: Final = {
    "aider": CodingAgent("aider", "pipx install aider-chat", 8_192, _aider),
    "claude": CodingAgent("claude", "npm install -g @anthropic-ai/claude-code", 65_536, _claude),
    "codex": CodingAgent("codex", "npm install -g @openai/codex", 32_768, _codex),
    "opencode": CodingAgent("opencode", "npm install -g opencode-ai", 32_768, _opencode),
    "qwen": CodingAgent("qwen", "npm install -g @qwen-code/qwen-code", 65_536, _qwen),
}


def agent_start(agent: CodingAgent, to: Endpoint) -> AgentStart:
    """Return how an agent is started. It never inherits the key of an administrator: it runs commands that a model chooses."""
    start = agent.start(to)
    return start._replace(removed=start.removed | set(KEY_VARIABLES["admin_api_key"]))
