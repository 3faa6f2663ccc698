"""Packages that a test imports when it first uses them: each takes up to a second of every process that collects tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.runtime.deferred_module import DeferredModule

if TYPE_CHECKING:
    import anthropic
    import ollama
    import openai
    import schemathesis
    from websockets.sync import client as websocket_client
else:
    anthropic = DeferredModule("anthropic")
    ollama = DeferredModule("ollama")
    openai = DeferredModule("openai")
    schemathesis = DeferredModule("schemathesis")
    websocket_client = DeferredModule("websockets.sync.client")

__all__ = ["anthropic", "ollama", "openai", "schemathesis", "websocket_client"]
