"""llama.cpp's slots: their state, and their prompt caches."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.api.common.inference.inference_resource import TranslatedRequest, answer_inference
from gateway.api.common.request_fields import text_of
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import client_of
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import DECODE_ERRORS, invalid, not_understood

ACTIONS: Final = ("save", "restore", "erase")
MAX_FILENAME_LENGTH: Final = 200
_NAMES_OF_ENGINE: Final = frozenset({"samplers", "chat_format", "reasoning_format"})
_SLOT: Final = re.compile(r"[0-9]{1,9}")
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_slots: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


def documented_slots(answer: bytes) -> bytes:
    """Return the engine's slots with the documented fields added, and without clients' texts."""
    try:
        return msgspec.json.encode([_documented(slot) for slot in _slots(answer)])
    except (TypeError, AttributeError, *DECODE_ERRORS) as problem:
        raise not_understood(problem) from None


def documented_slot(answer: bytes, fields: dict[str, Any]) -> bytes:
    """Return the engine's answer about one slot, with ``fields`` added."""
    try:
        return msgspec.json.encode({**_object(answer), **fields})
    except DECODE_ERRORS as problem:
        raise not_understood(problem) from None


def _documented(slot: dict[str, Any]) -> dict[str, Any]:
    busy = bool(slot.get("is_processing"))
    following = slot.get("next_token")
    if isinstance(following, list):
        following = following[0] if following else None
    token: dict[str, Any] = {"has_next_token": False, "n_remain": 0, "n_decoded": 0}
    if following:
        token |= following if busy else {}
    kept = _without_texts(slot)
    if isinstance(params := slot.get("params"), dict):
        kept["params"] = _without_texts(params)
    # The number of tokens in the slot's cache. The engine reports none before its first request.
    cached = slot.get("n_prompt_tokens") or slot.get("n_prompt_tokens_cache") or 0
    return {
        **kept,
        "state": "processing" if busy else "idle",
        "next_token": token,
        "task_id": slot.get("id_task", -1) if busy else -1,
        "cache_tokens": cached,
    }


def _without_texts(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers, and the names that the engine chose: any other text may be a client's."""
    return {
        key: value
        for key, value in fields.items()
        if value is None or isinstance(value, int | float) or key in _NAMES_OF_ENGINE
    }


def check_filename(name: str) -> str:
    """Return the bare name of a saved prompt cache; raises ``invalid_request`` for anything else."""
    wrong = ""
    if not name:
        wrong = "is required"
    elif any(letter in "/\\" for letter in name) or ".." in name or name.startswith("."):
        wrong = "must be a name without `/`, `\\` and `..`, that does not begin with a dot"
    elif any(unicodedata.category(letter).startswith("C") for letter in name):
        wrong = "must not contain control characters"
    elif len(name.encode("utf-8", "replace")) > MAX_FILENAME_LENGTH:
        wrong = f"must be at most {MAX_FILENAME_LENGTH} bytes"
    elif name != name.strip() or name.endswith("."):
        wrong = "must not begin or end with a space, nor end with a dot"
    if wrong:
        raise invalid(f"`filename` {wrong}", "filename")
    return name


def slot_query(action: str | None, slot_id: str) -> str:
    """Return ``save/0`` and the like; raises ``invalid_request``."""
    if action not in ACTIONS:
        raise invalid(f"`action` must be one of {', '.join(ACTIONS)}", "action")
    if not _SLOT.fullmatch(slot_id):
        raise invalid("the slot's id must be a whole number", "id")
    return f"{action}/{int(slot_id)}"


class SlotsResource:
    """``GET slots``: the state of all slots of a llama.cpp model."""

    def __init__(self, session: SupervisorSession) -> None:
        """Ask engines through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer for the model used last, or for ``?model=``. It loads nothing and waits for no slot."""
        translated = _slots_request(req, "GET", {}, documented_slots)
        answer_inference(self._session, req, resp, translated)


class SlotResource:
    """``POST slots/{id}``: saves, restores or erases the prompt cache of one slot."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Ask engines through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response, slot_id: str) -> None:
        """Do what ``?action=`` names."""
        query = slot_query(req.get_param("action"), slot_id)
        data = body_decoding.read_optional_json(req, self._session.settings.body_limit)
        body = body_decoding.decode_object(data, client_of(req.env))
        fields = {} if query.startswith("erase/") else {"filename": check_filename(text_of(body, "filename"))}

        def document(answer: bytes) -> bytes:
            return documented_slot(answer, {"id_slot": int(slot_id), **fields})

        answer_inference(self._session, req, resp, _slots_request(req, query, fields, document))


def _slots_request(
    req: falcon.Request, query: str, body: dict[str, Any], document: Callable[[bytes], bytes]
) -> TranslatedRequest:
    model = req.get_param("model", default="")
    data = msgspec.json.encode(body)
    answer = AnswerFormat(falcon.MEDIA_JSON, lambda answer: document(answer.body))
    return TranslatedRequest("slots", model, data, weight=0, query=query, answer=answer)
