"""The job that lists the models of other servers: what it takes of their answers."""

from __future__ import annotations

import json

import msgspec
import pytest

from protocol.failures import DECODE_ERRORS
from protocol.messages.remote_models import MAX_MODELS, RemoteModel
from workers.jobs.list_remotes import listed_models


def answer(*models: dict[str, object]) -> bytes:
    return json.dumps({"object": "list", "data": list(models)}).encode()


def test_names_and_labels_are_taken() -> None:
    listed = listed_models(
        answer({"id": "a", "object": "model"}, {"id": "b/c", "labels": ["vision"], "recipe": "llamacpp"})
    )
    assert listed == [RemoteModel("a"), RemoteModel("b/c", ["vision"])]
    assert msgspec.convert(msgspec.to_builtins(listed), list[RemoteModel]) == listed


def test_what_the_other_server_has_from_elsewhere_is_left_out() -> None:
    assert listed_models(answer({"id": "gpu2/a", "recipe": "remote"}, {"id": "a"})) == [RemoteModel("a")]


def test_names_that_cannot_be_names_are_left_out_and_long_lists_are_cut() -> None:
    assert listed_models(answer({"id": ""}, {"id": "x" * 201}, {"id": "a\nb"})) == []
    assert len(listed_models(answer(*({"id": str(number)} for number in range(MAX_MODELS + 5))))) == MAX_MODELS


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data": 3}', b'{"data": [{}]}', b"<html>", b"\xff"])
def test_anything_else_is_an_error(body: bytes) -> None:
    with pytest.raises(DECODE_ERRORS):
        listed_models(body)
