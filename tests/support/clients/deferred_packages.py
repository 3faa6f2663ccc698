"""Packages that a test imports when it first uses them: each takes up to a second of every process that collects tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.runtime.deferred_module import DeferredModule

if TYPE_CHECKING:
    import ollama
    import openai
    import schemathesis
else:
    ollama = DeferredModule("ollama")
    openai = DeferredModule("openai")
    schemathesis = DeferredModule("schemathesis")

__all__ = ["ollama", "openai", "schemathesis"]
