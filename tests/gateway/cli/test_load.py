"""``lemonbus load`` and ``unload``: the options they send, and the download before a load."""

from __future__ import annotations

import json

import pytest
from click import Command, Context, Option

from gateway.cli.options import parse_options
from tests.gateway.cli.canned_responses import ALL, CHAT, COMPLETE, DONE, PULL, catalogue, chunk, end, model, progress
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply
from workers.backends.registry import DESCRIPTORS

LOADED = {
    "status": "success",
    "message": "Loaded model: A",
    "model_name": "A",
    "model": "A",
    "checkpoint": "o/A:Q4_0",
    "recipe": "llamacpp",
}
UNLOADED = {"status": "success", "message": "Model unloaded successfully", "model_name": "A", "unloaded": ["A"]}


def test_load_sends_options_and_prints_the_message(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/load"] = Reply(LOADED)
    words = "load A --ctx-size 512 -o llamacpp_args=--no-mmap -o llamacpp-backend=cpu --save-options --pin --ttl 600"
    assert lemonbus(*words.split()) == (0, "Loaded model: A\n", "")
    assert server.last() == {
        "model_name": "A",
        "ctx_size": 512,
        "llamacpp_args": "--no-mmap",
        "llamacpp_backend": "cpu",
        "save_options": True,
        "pinned": True,
        "ttl": 600.0,
    }
    assert json.loads(lemonbus("load", "A", "--json")[1])["status"] == "success"
    assert server.last() == {"model_name": "A"}


def test_a_dry_run_shows_memory_and_what_would_be_unloaded(server: FakeServer, lemonbus: Ends) -> None:
    place = {"place": "host", "name": "", "total": 16e9, "free": 3e9, "reserved": 1e9, "available": 2e9, "need": 5e9}
    evicted = {"model": "B", "reason": "memory", "busy": False, "idle_seconds": 75.0, "frees": {"host": 4_000_000_000}}
    plan = {
        "decision": "evict",
        "context": 4096,
        "slots": 2,
        "places": [{key: int(value) if isinstance(value, float) else value for key, value in place.items()}],
        "parts": {"weights": 4_500_000_000, "cache": 500_000_000},
        "measured": True,
        "evictions": [evicted],
        "refusal": None,
        "node": "gpu1",
    }
    server.replies["POST", "/v1/load"] = Reply({**LOADED, "message": "A can be loaded", "plan": plan})
    code, shown, _ = lemonbus("load", "A", "--dry-run")
    assert server.last() == {"model_name": "A", "dry_run": True}
    assert (code, shown.splitlines()) == (
        0,
        [
            "A can be loaded",
            "",
            "PLACE  NEED    AVAILABLE  FREE    KEPT FREE  TOTAL",
            "host   5.0 GB  2.0 GB     3.0 GB  1.0 GB     16 GB",
            "",
            "Need: weights 4.5 GB, cache 500 MB (corrected by a former load)",
            "Node: gpu1",
            "Context: 4096 tokens in each of 2 slots",
            "",
            "UNLOADED FIRST  REASON  IDLE FOR  FREES",
            "B               memory  1 min     host 4.0 GB",
        ],
    )


def test_the_context_that_was_taken_is_shown(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/load"] = Reply({**LOADED, "context": 8192})
    assert lemonbus("load", "A", "--ctx-size", "-1") == (
        0,
        "Loaded model: A\nContext: 8192 tokens of each request\n",
        "",
    )


@pytest.mark.parametrize("words", ["", "--json"])
def test_a_dry_run_of_a_load_that_would_be_refused_fails(server: FakeServer, lemonbus: Ends, words: str) -> None:
    refusal = {"status": 507, "code": "insufficient_memory", "message": "too large"}
    facts = {"context": 0, "slots": 1, "places": [], "parts": {}, "measured": False, "evictions": []}
    plan = {"decision": "refuse", **facts, "refusal": refusal}
    server.replies["POST", "/v1/load"] = Reply({**LOADED, "message": "A cannot be loaded: too large", "plan": plan})
    code, shown, _ = lemonbus("load", "A", "--dry-run", *words.split())
    assert code == 1
    assert "A cannot be loaded: too large" in shown


@pytest.mark.parametrize(
    ("words", "sent"),
    [("--ctx-size -1", -1), ("--ctx-size auto", "auto"), ("-o ctx_size=-1", -1), ("-o ctx-size=auto", "auto")],
)
def test_an_automatic_context_is_asked_for_in_either_form(
    server: FakeServer, lemonbus: Ends, words: str, sent: object
) -> None:
    server.replies["POST", "/v1/load"] = Reply(LOADED)
    assert lemonbus("load", "A", *words.split())[0] == 0
    assert server.last() == {"model_name": "A", "ctx_size": sent}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1", 1),
        ("-2", -2),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("nan", "nan"),
        ("1_0", "1_0"),
        ("", ""),
        ("a=b", "a=b"),
        ("true", True),
        ("false", False),
    ],
)
def test_option_values(word: str, value: object) -> None:
    options = parse_options(Context(Command("load")), Option(["--option"]), (f"k={word}",))
    assert options == {"k": value}
    assert type(options["k"]) is type(value)


@pytest.mark.parametrize("name", sorted({option.name for each in DESCRIPTORS.values() for option in each.options}))
def test_each_option_can_be_given_by_its_name(name: str) -> None:
    assert parse_options(Context(Command("load")), Option(["--option"]), (f"{name}=1",)) == {name: 1}


@pytest.mark.parametrize("words", [["run", "A", "hi"], ["load", "A"]])
def test_a_model_that_is_not_downloaded_is_downloaded_first(
    server: FakeServer, lemonbus: Ends, words: list[str]
) -> None:
    server.replies[ALL] = catalogue(model("A"))
    server.replies[PULL] = Reply(pieces=[progress(50), COMPLETE])
    server.replies["POST", "/v1/load"] = Reply(LOADED)
    server.replies[CHAT] = Reply(pieces=[chunk(content="yes"), end(), DONE])
    code, _, err = lemonbus(*words)
    assert code == 0
    assert "Downloading A first" in err
    assert [path for _, path, _, _ in server.asked][1] == "/v1/pull"


@pytest.mark.parametrize("words", [["run", "A", "hi"], ["load", "A"]])
def test_nothing_is_said_of_a_download_that_the_server_refuses(
    server: FakeServer, lemonbus: Ends, words: list[str]
) -> None:
    server.replies[ALL] = catalogue(model("A"))
    why = "A cannot be loaded: its file a.gguf is missing; put it back"
    error = {"message": why, "code": "model_unusable", "request_id": "r", "detail": "/models/a.gguf"}
    server.replies[PULL] = Reply({"error": error}, 500)
    assert lemonbus(*words) == (1, "", f"lemonbus: {why} (model_unusable, r)\nDetails:\n  /models/a.gguf\n")
    assert [path for _, path, _, _ in server.asked][1:] == ["/v1/pull"]


def test_a_failed_load_shows_the_engines_output(server: FakeServer, lemonbus: Ends) -> None:
    error = {"message": "it exited", "code": "load_failed", "request_id": "r", "detail": "one\nlibgomp.so.1: no such\n"}
    server.replies["POST", "/v1/load"] = Reply({"error": error}, 503)
    expected = "lemonbus: it exited (load_failed, r)\nDetails:\n  one\n  libgomp.so.1: no such\n"
    assert lemonbus("load", "A") == (1, "", expected)


def test_an_unknown_model_leads_to_the_list(server: FakeServer, lemonbus: Ends) -> None:
    error = {"message": "Model 'A' not found", "code": "model_not_found", "request_id": "r"}
    server.replies["POST", "/v1/pin"] = Reply({"error": error}, 404)
    expected = "lemonbus: Model 'A' not found (model_not_found, r); `lemonbus list --all` shows the models\n"
    assert lemonbus("pin", "A") == (1, "", expected)


def test_unload(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/unload"] = Reply(UNLOADED)
    assert lemonbus("unload", "A") == (0, "Model unloaded successfully\n", "")
    assert server.last() == {"model_name": "A"}
    for unloaded, printed in ((["A", "B"], "Unloaded: A, B\n"), ([], "No model was loaded.\n")):
        server.replies["POST", "/v1/unload"] = Reply({**UNLOADED, "unloaded": unloaded})
        assert lemonbus("unload", "--all") == (0, printed, "")
        assert server.last() == {}


def test_a_model_that_cannot_be_unloaded_leads_to_the_loaded_ones(server: FakeServer, lemonbus: Ends) -> None:
    error = {"message": "Model not found: A", "code": "model_not_found", "request_id": "r"}
    server.replies["POST", "/v1/unload"] = Reply({"error": error}, 404)
    expected = "lemonbus: Model not loaded: A (model_not_found, r); `lemonbus ps` shows the loaded ones\n"
    assert lemonbus("unload", "A") == (1, "", expected)


@pytest.mark.parametrize(("verb", "pinned", "printed"), [("pin", True, "Pinned"), ("unpin", False, "Unpinned")])
def test_a_model_is_pinned_and_unpinned(
    server: FakeServer, lemonbus: Ends, verb: str, pinned: bool, printed: str
) -> None:
    server.replies["POST", "/v1/pin"] = Reply({"status": "success", "model_name": "A", "pinned": pinned})
    assert lemonbus(verb, "a:latest") == (0, f"{printed} model: A\n", "")
    assert server.last() == {"model_name": "a:latest", "pinned": pinned}
    assert json.loads(lemonbus(verb, "A", "--json")[1])["pinned"] is pinned
