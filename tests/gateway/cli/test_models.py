"""``lemonbus list`` and ``delete``: their requests and their output."""

from __future__ import annotations

import json

from protocol.models.recipes import ModelOrigin
from tests.gateway.cli.canned_responses import ALL, catalogue, model
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply


def test_list(server: FakeServer, lemonbus: Ends) -> None:
    here = model("Tiny", size=0.098, labels=["tool-calling"], downloaded=True)
    busy = model("Busy", size=0.098, downloaded=True, loaded=True)
    away = model("Away", size=0.0)
    server.replies[ALL] = catalogue(here, busy, away)
    code, out, _ = lemonbus("list")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["NAME", "SIZE", "STATE", "RECIPE", "LABELS"],
        ["Tiny", "98", "MB", "downloaded", "llamacpp", "tool-calling"],
        ["Busy", "98", "MB", "loaded", "llamacpp"],
    ]
    assert lemonbus("list", "--all")[1].splitlines()[3].split() == ["Away", "-", "-", "llamacpp"]
    assert json.loads(lemonbus("list", "--json")[1])["data"] == json.loads(catalogue(here, busy).pieces[0])["data"]
    server.replies[ALL] = catalogue(away)
    code, out, err = lemonbus("list")
    assert (code, out) == (0, "")
    assert "lemonbus list --all" in err


def test_list_shows_the_nodes_of_a_server_that_has_several(server: FakeServer, lemonbus: Ends) -> None:
    spread = model("Spread", size=0.1, downloaded=True, nodes=["head", "gpu1"])
    server.replies[ALL] = catalogue(spread, model("Far", size=0.0, downloaded=True, origin=ModelOrigin.SERVER))
    assert [line.split() for line in lemonbus("list")[1].splitlines()] == [
        ["NAME", "SIZE", "STATE", "NODES", "RECIPE", "LABELS"],
        ["Spread", "100", "MB", "downloaded", "head", "gpu1", "llamacpp"],
        ["Far", "-", "elsewhere", "-", "llamacpp"],
    ]


def test_list_calls_only_files_downloaded(server: FakeServer, lemonbus: Ends) -> None:
    own = model("Own", size=0.0, downloaded=True, origin=ModelOrigin.PROGRAM)
    far = model("Far", size=0.0, downloaded=True, origin=ModelOrigin.SERVER)
    server.replies[ALL] = catalogue(own, far)
    lines = [line.split() for line in lemonbus("list")[1].splitlines()]
    assert lines[1:] == [["Own", "-", "configured", "llamacpp"], ["Far", "-", "elsewhere", "llamacpp"]]


def test_list_counts_hidden_models_and_shows_the_reasons(server: FakeServer, lemonbus: Ends) -> None:
    hidden = model("X-FLM", unsupported_reason="Requires an AMD NPU")
    server.replies[ALL] = catalogue(model("A", downloaded=True), model("B"), hidden)
    code, out, err = lemonbus("list")
    assert (code, err) == (0, "")
    assert "A" in out
    assert "\nB" not in out
    code, out, err = lemonbus("list", "--all")
    assert "2.5 GB" in out
    assert "X-FLM" not in out
    assert "1 more cannot be run here; lemonbus list --hidden shows the reasons." in err
    code, out, _ = lemonbus("list", "--hidden")
    assert "X-FLM" in out
    assert "Requires an AMD NPU" in out
    shown = json.loads(lemonbus("list", "--hidden", "--json")[1])["data"]
    assert [(each["id"], each["unsupported_reason"]) for each in shown] == [("X-FLM", "Requires an AMD NPU")]


def test_delete(server: FakeServer, lemonbus: Ends) -> None:
    answer = {
        "status": "success",
        "message": "Deleted model: A",
        "model_name": "A",
        "files_removed": 1,
        "kept_for": list[str](),
    }
    server.replies["POST", "/v1/delete"] = Reply(answer)
    assert lemonbus("delete", "A") == (0, "Deleted model: A\n", "")
    assert server.last() == {"model_name": "A"}
    server.replies["POST", "/v1/delete"] = Reply({**answer, "kept_for": ["user.B"]})
    assert "user.B" in lemonbus("delete", "A", "--yes")[2]
    assert json.loads(lemonbus("delete", "A", "--json")[1])["status"] == "success"
    server.replies["POST", "/v1/delete"] = Reply({"message": "there is no model 'A'"}, 404)
    code, out, err = lemonbus("delete", "A")
    assert (code, out) == (1, "")
    assert "no model" in err


def test_a_dry_run_of_a_deletion_lists_the_files(server: FakeServer, lemonbus: Ends) -> None:
    answer = {"status": "success", "message": "A can be deleted", "model_name": "A", "files_removed": 0}
    removed = [{"path": "/hub/a.gguf", "size": 2_000_000_000}, {"path": "/hub/b.gguf", "size": 500_000_000}]
    server.replies["POST", "/v1/delete"] = Reply({**answer, "kept_for": ["user.B"], "removed": removed})
    code, out, err = lemonbus("delete", "--dry-run", "A")
    assert code == 0
    assert "It would free at most 2.5 GB:" in out
    assert ["2.0", "GB", "/hub/a.gguf"] in [line.split() for line in out.splitlines()]
    assert "user.B" in err
    assert server.last() == {"model_name": "A", "dry_run": True}


def test_several_models_are_deleted_even_if_one_is_refused(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/delete"] = Reply({"message": "there is no such model"}, 404)
    code, out, err = lemonbus("rm", "A", "B")
    assert (code, out, err) == (1, "", "lemonbus: there is no such model\n" * 2)
    assert [asked[2]["model_name"] for asked in server.asked] == ["A", "B"]


def test_a_wrong_key_ends_a_deletion_of_several_models(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/delete"] = Reply({"message": "not allowed"}, 403)
    code, _, err = lemonbus("rm", "A", "B")
    assert (code, err, len(server.asked)) == (4, "lemonbus: not allowed\n", 1)
