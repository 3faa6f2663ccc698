"""``lemonbus du`` and ``prune``: tables, the question on a terminal, and what is said of what was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import TerminalProcess
from tests.gateway.fake_server import FakeServer, Reply

USAGE = ("GET", "/internal/disk-usage")
PRUNE = ("POST", "/internal/prune")
MODEL = {"kind": "model", "name": "A", "path": "/m/a.gguf", "size": 2_000_000_000, "shared": 1_000_000}
LOST = {"kind": "unknown_model", "name": "lost", "path": "/m/lost", "size": 5_000_000, "unused": "no model has it"}


def pruned(*items: dict[str, Any], freed: int = 0) -> Reply:
    return Reply({"items": list(items), "total": sum(item["size"] for item in items), "freed": freed})


def test_du_lists_what_there_is(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[USAGE] = Reply({"items": [MODEL, LOST], "total": 2_005_000_000, "unused": 5_000_000})
    code, out, _ = lemonbus("du")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["SIZE", "SHARED", "WHAT", "NAME", "NOTE"],
        ["2.0", "GB", "1.0", "MB", "model", "A", "-"],
        ["5.0", "MB", "-", "unknown", "model", "lost", "unused:", "no", "model", "has", "it"],
        [],
        ["2.0", "GB", "in", "all,", "of", "which", "nothing", "uses", "5.0", "MB:", "lemonbus", "prune"],
    ]
    code, out, _ = lemonbus("du", "--json")
    assert (code, json.loads(out)["total"], json.loads(out)["items"][0]["path"]) == (0, 2_005_000_000, "/m/a.gguf")


def test_prune_asks_on_a_terminal(server: FakeServer) -> None:
    server.replies[PRUNE] = lambda request: pruned(LOST, freed=0 if request["dry_run"] else 5_000_000)
    for typed, code in (("n\n", 130), ("\n", 130), ("y\n", 0)):
        server.asked.clear()
        with TerminalProcess("prune") as terminal:
            terminal.until("lost")
            terminal.until("Remove this? [y/N]:")
            terminal.type(typed)
            if code == 0:
                terminal.until("5.0 MB were freed.")
            assert terminal.ends() == code
        assert [request[2]["dry_run"] for request in server.asked] == [True, False][: 2 if code == 0 else 1]
    server.replies[PRUNE] = pruned()
    with TerminalProcess("prune") as terminal:
        terminal.until("Nothing is unused.")
        assert terminal.ends() == 0


def test_a_script_must_say_yes_or_only_look(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[PRUNE] = lambda request: pruned(
        {**LOST, "removed": not request["dry_run"]}, freed=0 if request["dry_run"] else 5_000_000
    )
    code, _, err = lemonbus("prune")
    assert (code, server.asked) == (2, [])
    assert "Add --yes, or --dry-run" in err
    code, out, _ = lemonbus("prune", "--dry-run", "--prompt-caches")
    assert (code, "unused: no model has it" in out) == (0, True)
    assert server.last() == {"dry_run": True, "prompt_caches": True}
    assert lemonbus("prune", "--yes") == (0, "Removed 1 of 1; 5.0 MB were freed.\n", "")
    assert server.last() == {"dry_run": False, "prompt_caches": False}
    code, out, _ = lemonbus("prune", "-y", "--json")
    assert (code, json.loads(out)["freed"]) == (0, 5_000_000)


def test_what_was_kept_is_named_and_ends_with_1(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[PRUNE] = pruned({**LOST, "kept": "another process is using it"})
    code, out, err = lemonbus("prune", "--yes")
    assert (code, out) == (1, "Removed 0 of 1; 0 B were freed.\n")
    assert err == f"lemonbus: {Path('/m/lost')} was kept: another process is using it\n"
