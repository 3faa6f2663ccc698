"""`docs/lifecycles.md` has the same tables as the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from gateway.requests import admission_states
from protocol import worker_states
from protocol.batches import batch_states
from supervisor.handlers import upgrade
from supervisor.keeper import process_states, upgrade_steps
from supervisor.lifecycle import fork_server, succession
from supervisor.node_agent import agent_states
from supervisor.nodes import node_states
from supervisor.processes import fork_orders
from supervisor.scheduler import model_states
from workers.requests.attempt import NEXT_PHASES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "lifecycles.md"
LIFECYCLES: Mapping[str, Mapping[Any, Mapping[Any, Any]]] = {
    "A worker": worker_states.TRANSITIONS,
    "A model": model_states.TRANSITIONS,
    "A batch": batch_states.TRANSITIONS,
    "The server": process_states.SERVER,
    "A supervisor": process_states.SUPERVISOR,
    "A fork server": process_states.FORK_SERVER,
    "An upgrade": upgrade_steps.UPGRADE,
    "The installed release, as a supervisor sees it": upgrade.TRANSITIONS,
    "The end of a supervisor, as it sees itself": succession.TRANSITIONS,
    "What a fork server has imported for workers": fork_server.TRANSITIONS,
    "A fork server, as a supervisor sees it": fork_orders.TRANSITIONS,
    "The admission of requests in a gateway": admission_states.TRANSITIONS,
    "A node besides the head": node_states.TRANSITIONS,
    "The agent of a node": agent_states.TRANSITIONS,
}
"""Heading on the page → state → event → next state."""


def rows(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading: first cell, without its marks → the other cells."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"(?m)^\| ?`.*$", section)]
    return {row[0].strip("`"): row[1:] for row in cells}


def word(state: Enum) -> str:
    return state.name.lower()


@pytest.mark.parametrize("heading", LIFECYCLES)
def test_a_table_of_the_page_is_the_table_of_the_code(heading: str) -> None:
    shown = {state: re.findall(r"`(\w+)` → `(\w+)`", cells[-1]) for state, cells in rows(heading).items()}
    assert shown == {
        word(state): [(word(event), word(after)) for event, after in steps.items()]
        for state, steps in LIFECYCLES[heading].items()
    }


def test_an_attempt_has_the_next_states_of_the_page() -> None:
    shown = {state: set(re.findall(r"`(\w+)`", cells[-1])) for state, cells in rows("An attempt at a request").items()}
    assert shown == {word(state): set(map(word, after)) for state, after in NEXT_PHASES.items()}


@pytest.mark.parametrize(
    ("heading", "views"), [("A worker", worker_states.KNOWN_TO_WORKER), ("A model", model_states.WORKER_STATES)]
)
def test_the_second_column_says_the_state_of_the_worker(heading: str, views: Mapping[Any, Any]) -> None:
    shown = {state: cells[0].strip("`") for state, cells in rows(heading).items()}
    assert shown == dict.fromkeys(shown, "") | {word(state): word(seen) for state, seen in views.items()}


def test_every_lifecycle_of_the_page_is_compared() -> None:
    headings = re.findall(r"(?m)^## (.*)$", PAGE.read_text())
    assert sorted(headings) == sorted([*LIFECYCLES, "An attempt at a request"])
