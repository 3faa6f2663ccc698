"""How much media a request may contain, and what decoding it may cost, on all routes. docs/media.md tells clients.

`images` and `audio_duration` check them, in a decoder process (`decoder_process`); `gateway/requests/request_media.py` counts those of a request.
The bytes of a request are limited by :mod:`gateway.http.bodies.body_limits`, those of images that are fetched by
:mod:`gateway.fetching.request_images`.
"""

from __future__ import annotations

from typing import Final

MAX_MEDIA: Final = 100
"""Images and recordings of one request."""
MAX_SIDE_PIXELS: Final = 8192
"""Pixels per side of an image: a small file may be an immense image."""
MAX_SCANS: Final = 100
"""Of a JPEG: programs write ten or so, and 4,500 empty ones of the largest image took 18 processor seconds."""
MAX_PIXELS: Final = 2 * MAX_SIDE_PIXELS**2
"""Pixels of all images of a request together; an engine needs three bytes for each."""
MAX_CHAT_AUDIO_S: Final = 3600.0
"""Seconds of all recordings in a chat together."""
MAX_CHANNELS: Final = 8
DECODE_TIMEOUT_S: Final = 10.0
"""Processor seconds that decoders may take for all media of a request; the largest image that fits into a body takes 2."""
DECODE_DEADLINE_S: Final = 60.0
"""Seconds after which a decoder that has not answered is killed, whatever it waits for."""
MAX_DECODERS: Final = 3
"""Processes of one gateway; further requests wait."""
MAX_DECODERS_OF_CLIENT: Final = 2
"""Of them, for the requests of one key, or of one address without keys."""
DECODER_MEMORY: Final = 1536 * 1024 * 1024
"""Bytes of address space of a decoder."""
