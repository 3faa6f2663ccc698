"""One request for an engine, as a backend describes it and a worker sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class EngineRequest(NamedTuple):
    """One HTTP request for an engine, and which optional parts of the answer its client requested."""

    method: str
    path: str
    body: bytes = b""
    streamed: bool = False
    """The engine answers with server-sent events."""
    usage: bool = False
    """The client asked for the usage chunk of a stream."""
    progress: bool = False
    """The client asked for the progress events of a stream."""
    tokens: bool = False
    """Whether the client asked for the tokens of a native completion."""
    prompts: int = 1
    """0 for a read, which the engine answers without a slot."""
    choices: int = 1
    """Completions of each prompt."""
    in_turn: bool = False
    """Whether the engine computes them one after the other, in one slot."""
    patient: bool = False
    """Whether its events may be handled in large batches: no client reads a stream, and the engine reports token times.

    Only for engines whose processor time shows their progress, because the worker does not wake for each token.
    """
    content_type: str = "application/json"
    grammar: bool = False
    """Whether it may trap the engine in a grammar, including those of schemas and tools."""
    announced: bool = False
    """Whether the engine sends an event when it begins with the prompt; before that, it may be working without a slot."""
    native: bool = False
    """Whether the answer has the form of llama.cpp's own completions, not OpenAI's."""
    translate: Callable[[bytes], bytes] | None = None
    """Rewrites an answer (for a stream, each piece of it) as llama-server would write it; raises ValueError if it is malformed."""
    restart: Callable[[], None] | None = None
    """Makes ``translate`` forget what it has had of an answer, because another answer begins."""
    end_marker: bool = True
    """Whether a stream ends with ``[DONE]``. Otherwise, the end of the response ends it, if every choice has ended."""
    via: str = ""
    """The header ``Via`` for another server: the lemonbus servers that have passed the request on."""
    warning: str = ""
    """What to tell the client about it, in ASCII without quotes: a part that has no effect."""

    @property
    def weight(self) -> int:
        """Slots of the engine that it uses."""
        completions = self.prompts * self.choices
        return min(1, completions) if self.in_turn else completions

    def translated(self, then: Callable[[bytes], bytes]) -> EngineRequest:
        """Return the request with an answer that ``then`` also translates, after the present translation."""
        first = self.translate
        return self._replace(translate=then if first is None else lambda data: then(first(data)))
