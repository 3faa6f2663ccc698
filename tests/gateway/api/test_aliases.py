"""``/internal/aliases``, ``models/register`` and ``models/{id}/files``, as Lemonade's clients use them."""

from __future__ import annotations

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages.model_details import ConfiguredModel, CopyModel, RemoveAlias, ShowModel
from protocol.messages.model_files import ModelFile, RegisterModel
from protocol.messages.models import ListModels, ModelEntry
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

ENTRY = ModelEntry("M", 0, "o/r:Q4", "llamacpp", "llm", downloaded=True, given_names=["mine", "o/other"])


def test_aliases_are_listed_set_and_removed(ask: AppClient) -> None:
    ask.reports.update({ListModels: [ENTRY], CopyModel: "M", RemoveAlias: "o/other"})
    assert ask("GET", "/internal/aliases").json == {
        "aliases": [
            {"alias": alias, "target": "M", "downloaded": True, "recipe": "llamacpp"} for alias in ("mine", "o/other")
        ]
    }
    for field in ("target", "model"):
        result = ask("POST", "/internal/aliases", {"alias": "mine", field: "M"})
        assert result.json == {"status": "ok", "alias": "mine", "target": "M"}
    assert ask("DELETE", "/internal/aliases/o/other").json == {"status": "deleted", "alias": "o/other"}
    assert [(call.source, call.destination) for call in ask.asked(CopyModel)] == [("M", "mine")] * 2
    assert ask.asked(RemoveAlias)[0].alias == "o/other"


def test_what_is_wrong_with_an_alias_is_named_as_it_was_sent(ask: AppClient) -> None:
    is_error(ask("POST", "/internal/aliases", {"alias": "mine"}), 400, "invalid_request", "target")
    is_error(ask("POST", "/internal/aliases", {"target": "M"}), 400, "invalid_request", "alias")
    ask.reports[CopyModel] = Failure(Code.CONFLICT, "it is a name of model N already", param="destination")
    is_error(ask("POST", "/internal/aliases", {"alias": "N", "target": "M"}), 409, "conflict", "alias")
    ask.reports[RemoveAlias] = Failure(Code.NOT_FOUND, "no", param="alias")
    is_error(ask("DELETE", "/internal/aliases/x"), 404, "not_found", "alias")


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_a_model_is_registered(ask: AppClient, prefix: str) -> None:
    ask.reports[RegisterModel] = ModelEntry("user.x", 0, "a/b:Q4", "llamacpp", "llm", downloaded=False)
    body = {"model_name": "user.x", "checkpoint": "a/b:Q4", "recipe": "llamacpp"}
    answer = ask("POST", f"{prefix}/models/register", body).json
    assert (answer["status"], answer["model_name"], answer["canonical_model_name"]) == ("success", "user.x", "user.x")
    assert (answer["downloaded"], answer["labels"]) == (False, [])
    (call,) = ask.asked(RegisterModel)
    assert (call.registration.checkpoint, call.registration.recipe) == ("a/b:Q4", "llamacpp")
    is_error(ask("POST", f"{prefix}/models/register", {"model_name": "user.x"}), 400, "invalid_request", "checkpoint")


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_the_files_of_a_model(ask: AppClient, prefix: str) -> None:
    files = [ModelFile("/hub/a.gguf", 5), ModelFile("/hub/mmproj-F16.gguf", 2), ModelFile("/hub/v.gguf", 3, "vae")]
    ask.reports[ShowModel] = ConfiguredModel(ENTRY, [], [], [], files=files)
    shown = ask("GET", f"{prefix}/models/o/other/files").json
    assert shown == {
        "model_id": "M",
        "files": [
            {"name": "a.gguf", "role": "main", "size_bytes": 5, "exists": True},
            {"name": "mmproj-F16.gguf", "role": "mmproj", "size_bytes": 2, "exists": True},
            {"name": "v.gguf", "role": "vae", "size_bytes": 3, "exists": True},
        ],
    }
    whole = ask("GET", f"{prefix}/models/M/files?include_paths=true").json["files"]
    assert [each["path"] for each in whole] == [each.path for each in files]
