"""The API shared by llama-server and our server for ONNX Runtime GenAI: sampling flags, errors, ``/props`` and ``/slots``."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.models.sampling import SAMPLING_PARAMS
from workers.backends.engine_facts import EngineFacts
from workers.backends.error_texts import ErrorTexts

SAMPLING_FLAGS: Final = [
    word
    for flag, name in (("--temp", "temperature"), ("--top-p", "top_p"), ("--top-k", "top_k"))
    for word in (flag, str(SAMPLING_PARAMS[name].default))
]
"""The documents' defaults as flags, which cost requests nothing.

``max_length`` is not among them: a chat ends by itself, at the end of its context, or at the limit of its request.
"""


ERROR_TEXTS: Final = ErrorTexts(
    too_long_type="exceed_context_size_error",
    token_counts=re.compile(r"\((\d+) tokens\)\D*(\d+)"),
    caller_mistake=re.compile("input is not supported"),
    field=re.compile(r"^Field '([\w.]{1,80})': "),
)
"""An image for a model that reads only text is such a mistake."""


class _Slot(msgspec.Struct):
    is_processing: bool = False


class _GenerationSettings(msgspec.Struct):
    n_ctx: int


class _Props(msgspec.Struct):
    total_slots: int
    default_generation_settings: _GenerationSettings
    build_info: str = ""
    chat_template_caps: dict[str, bool] = {}
    """What the chat template can show.

    An older llama-server does not say, and shows tools to each model in its own words.
    """


_SLOTS: Final = msgspec.json.Decoder(list[_Slot])
_PROPS: Final = msgspec.json.Decoder(_Props)


def facts(answer: bytes) -> EngineFacts:
    """Read ``/props``; the version is the build's. Raises ValueError if it is malformed."""
    try:
        props = _PROPS.decode(answer)
    except DECODE_ERRORS as problem:
        raise ValueError(str(problem)) from problem
    takes_tools = props.chat_template_caps.get("supports_tools", True)
    return EngineFacts(props.total_slots, props.default_generation_settings.n_ctx, props.build_info, takes_tools)


def processing(answer: bytes) -> int:
    """Count the busy slots in ``/slots``; raises ValueError if it is malformed."""
    try:
        return sum(slot.is_processing for slot in _SLOTS.decode(answer))
    except DECODE_ERRORS as problem:
        raise ValueError(str(problem)) from problem
