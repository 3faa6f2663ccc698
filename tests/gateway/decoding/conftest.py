"""The decoder of a client, and files for it."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from gateway.decoding.decoder_process import IMAGE, Budget, Decoded, DecoderSession
from gateway.decoding.limits import DECODE_TIMEOUT_S, MAX_PIXELS
from tests.support.media import noise, written

BUDGET = Budget(MAX_PIXELS, 2**31)
NOISE = noise(64, 48)
FILE = written(NOISE, "PNG")
LARGE = Image.new("L", (8000, 8000))
CLIENT = "127.0.0.1"


@pytest.fixture(scope="module")
def decoder() -> DecoderSession:
    return DecoderSession(CLIENT)


def decode(session: DecoderSession, data: bytes | str, kind: int = IMAGE) -> Decoded:
    session._seconds_left = DECODE_TIMEOUT_S
    return session.decode(kind, BUDGET, data)


def opened(decoded: Decoded) -> Image.Image:
    image = Image.open(io.BytesIO(decoded.data))
    image.load()
    assert Image.MIME[image.format or ""] == decoded.kind
    return image
