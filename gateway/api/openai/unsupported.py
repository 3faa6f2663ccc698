"""OpenAI's routes that are not supported yet."""

from __future__ import annotations

from typing import Final

from gateway.api.common.unsupported import unsupported

_LIVE_AUDIO: Final = (
    "transcription of live audio (/realtime) is",
    "send whole recordings to audio/transcriptions",
)
vary_image = unsupported(
    *("POST", "images/variations", "variations of pictures are"), "no recipe has them; images/edits changes a picture"
)
# llama-server answers it with and without a prefix. A WebSocket begins with a GET.
open_live_audio = unsupported("GET", "realtime", *_LIVE_AUDIO, also=("/realtime",))
send_live_audio = unsupported("POST", "realtime", *_LIVE_AUDIO, also=("/realtime",))
