"""What a model demands of its node, and which backend runs it there."""

from __future__ import annotations

import pytest

from protocol.config.model_settings import ModelSettings
from protocol.models.nodes import HEAD, NodeFacts, NodeNeeds
from protocol.models.recipes import ModelSpec, NodeBackend, RecipeDescriptor, backend_on, with_backend
from supervisor.models.options.node_needs import node_demands
from workers.backends.registry import DESCRIPTORS

LLAMACPP, FLM = DESCRIPTORS["llamacpp"], DESCRIPTORS["flm"]
SECTION = ModelSettings(nodes=["gpu-*"], node_labels={"zone": "west"}, node_resources={"a100": 1.0})
PROGRAM = ModelSettings(command=["serve"])
SPEC = ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/m", backends=[NodeBackend("cuda", "gpu"), NodeBackend("cpu")])


def recipe_with(key: str) -> RecipeDescriptor:
    return next(each for each in DESCRIPTORS.values() if key in each.section_keys)


@pytest.mark.parametrize("several", [False, True])
def test_what_a_section_demands_counts_on_any_server(*, several: bool) -> None:
    needs = node_demands(LLAMACPP, LLAMACPP.backend("cpu"), SECTION, several_nodes=several).needs
    assert (needs.nodes, needs.labels, needs.resources) == (["gpu-*"], {"zone": "west"}, {"a100": 1.0})
    assert needs.backends == (["llamacpp:cpu"] if several else [])


def test_a_server_with_one_node_demands_nothing_else() -> None:
    assert node_demands(LLAMACPP, None, ModelSettings(), several_nodes=False) == (NodeNeeds(), ())


def test_a_backend_that_options_leave_open_is_any_of_the_recipe() -> None:
    needs, backends = node_demands(LLAMACPP, None, ModelSettings(), several_nodes=True)
    assert needs.backends == [f"llamacpp:{each.name}" for each in LLAMACPP.backends]
    assert [each.name for each in backends] == [each.name for each in LLAMACPP.backends]


def test_a_recipe_for_the_npu_says_so() -> None:
    needs, (backend,) = node_demands(FLM, None, ModelSettings(), several_nodes=True)
    assert (needs.backends, backend.npu, backend.device) == (["flm:npu"], "per_type", "npu")


def test_a_program_of_the_operator_is_on_the_head_unless_the_section_says_where() -> None:
    of_program = recipe_with("command")
    assert node_demands(of_program, None, PROGRAM, several_nodes=True).needs == NodeNeeds(nodes=[HEAD])
    elsewhere = ModelSettings(command=["serve"], nodes=["gpu2"])
    assert node_demands(of_program, None, elsewhere, several_nodes=True).needs == NodeNeeds(nodes=["gpu2"])


def test_a_model_on_another_server_demands_nothing() -> None:
    assert node_demands(recipe_with("url"), None, SECTION, several_nodes=True) == (NodeNeeds(), ())


@pytest.mark.parametrize(
    ("facts", "backend", "device"),
    [
        (NodeFacts(HEAD, backends=["llamacpp:cpu", "llamacpp:cuda"]), "cpu", "cpu"),
        (NodeFacts("gpu2", backends=["llamacpp:cpu", "llamacpp:cuda"]), "cuda", "gpu"),
        (NodeFacts("cpu2", backends=["llamacpp:cpu"]), "cpu", "cpu"),
        (NodeFacts("new"), "cpu", "cpu"),
    ],
)
def test_the_best_backend_of_a_node_runs_a_model_there(facts: NodeFacts, backend: str, device: str) -> None:
    found = backend_on(SPEC, facts)
    there = with_backend(SPEC, found)
    assert (found, there.backend, there.device) == (backend, backend, device)
    assert with_backend(SPEC, "") is SPEC
