"""OpenAI's routes that are not supported yet: 501 with the reason and an alternative."""

from __future__ import annotations

import falcon

from gateway.api.common.unsupported import UnsupportedResource


class UnsupportedWebSocketResource(UnsupportedResource):
    """The same for a WebSocket, which begins with a GET."""

    def on_get(self, _req: falcon.Request, _resp: falcon.Response) -> None:
        """Answer 501."""
        raise self._failure.raised()


def variations() -> UnsupportedResource:
    """Return ``images/variations``."""
    return UnsupportedResource("variations of pictures are", "no engine has them; recipe sd-cpp has images/edits")


def speech() -> UnsupportedResource:
    """Return ``audio/speech``."""
    return UnsupportedResource("speech is", "it takes a recipe for text to speech, such as kokoro, and there is none")


def realtime() -> UnsupportedWebSocketResource:
    """Return ``realtime``."""
    return UnsupportedWebSocketResource(
        "transcription of live audio (/realtime) is", "send whole recordings to audio/transcriptions"
    )
