"""What the page calls states, stages and slow models is what the server has, and what `lemonbus top` says."""

from __future__ import annotations

import json
from typing import Any

from gateway.cli.live import words
from protocol.messages.engines import LoadStage
from protocol.messages.node_reports import NodeState
from supervisor.scheduler.model_states import ModelState
from tests.gateway.page.node import ASSETS, node


def _exported(name: str, file: str = "diagnosis.js") -> Any:
    module = json.dumps((ASSETS / "overview" / file).as_uri())
    return json.loads(
        node("--input-type=module", "--eval", f"import {{ {name} }} from {module}; console.log(JSON.stringify({name}))")
    )


def test_every_state_of_a_model_has_a_name() -> None:
    assert set(_exported("STATES")) == set(ModelState)


def test_every_stage_of_a_load_has_a_name() -> None:
    assert set(_exported("STAGES")) == set(LoadStage)


def test_every_state_of_a_node_has_a_name() -> None:
    assert set(_exported("NODE_STATES", "nodes.js")) == set(NodeState)


def test_the_page_and_the_terminal_call_the_same_models_slow() -> None:
    for name in ("SLOW_FIRST_TOKEN_S", "SLOW_TOKENS_PER_SECOND", "SLOW_WAIT_S"):
        assert _exported(name) == getattr(words, name)
