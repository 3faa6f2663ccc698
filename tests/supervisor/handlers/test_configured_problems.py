"""Health names the models of the configuration that cannot be used, each once."""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.messages.health import FailedModel, ModelProblem
from supervisor.handlers.server_state import configured_problems

WHY = Failure(Code.LOAD_FAILED, "no memory")


def test_only_models_of_the_configuration_are_problems() -> None:
    troubled = [FailedModel("a", WHY, 2, 8.0), FailedModel("b", WHY, 1, 0.0), FailedModel("c", WHY, 1, 0.0)]
    assert configured_problems({"a", "b"}, troubled, {}) == [
        ModelProblem("a", "Model a has failed, and is tried again in 8 s: no memory"),
        ModelProblem("b", "Model b has failed, and is tried again with the next request: no memory"),
    ]


def test_a_failure_at_the_start_counts_until_another_one_or_the_configuration_replaces_it() -> None:
    at_start = {"a": WHY, "b": WHY, "nope": Failure(Code.MODEL_NOT_FOUND, "Model nope not found")}
    assert configured_problems({"a", "nope"}, [], at_start) == [
        ModelProblem("a", "Model a could not be loaded at the start: no memory")
    ]
    (problem,) = configured_problems({"a"}, [FailedModel("a", WHY, 1, 3.0)], at_start)
    assert "tried again in 3 s" in problem.text
