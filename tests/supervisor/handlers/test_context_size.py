"""Whether a request for a larger context loads the model, or loads it again."""

from __future__ import annotations

import pytest

from protocol.messages.engines import EngineReady
from protocol.models.recipes import ModelSpec
from supervisor.handlers.context_size import with_context
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view_values import ModelView

TRAINED = 32_768


def spec_of(context: int | None, recipe: str = "llamacpp", **asked: int) -> ModelSpec:
    options = {} if context is None else {"ctx_size": context}
    return ModelSpec("m", "o/r:Q4", recipe, "cpu", "llm", "/m.gguf", options={**options, **asked}, asked=dict(asked))


def ready(context: int = 4096, trained: int = TRAINED) -> ModelView:
    facts = EngineReady(4, min(context, trained), 1, "", 0.1, trained_context=trained)
    return ModelView("m", "llm", ModelState.READY, spec_of(context), worker="w1", facts=facts)


def loaded_with(wanted: int, model: ModelView) -> int | None:
    assert model.spec is not None
    spec = with_context(model.spec, wanted, model)
    return None if spec is None else int(spec.options["ctx_size"])


@pytest.mark.parametrize(
    ("context", "wanted", "loaded"),
    [(4096, 2048, None), (4096, 4096, None), (4096, 4097, 4097), (0, 9999, None), (-1, 9999, None), (None, 9999, None)],
)
def test_a_model_that_is_not_loaded_gets_what_it_would_have_or_more(
    context: int | None, wanted: int, loaded: int | None
) -> None:
    spec = with_context(spec_of(context, gpu_layers=3), wanted, None)
    assert (None if spec is None else spec.options["ctx_size"]) == loaded
    assert spec is None or spec.asked == {"gpu_layers": 3, "ctx_size": loaded}


def test_a_recipe_without_the_option_stays_as_it_is() -> None:
    assert with_context(spec_of(10, "whispercpp"), 9999, None) is None


def test_a_loaded_model_only_grows_and_to_what_it_was_trained_for_at_most() -> None:
    assert loaded_with(2048, ready()) is None
    assert loaded_with(8192, ready()) == 8192
    assert loaded_with(10 * TRAINED, ready()) == TRAINED
    assert loaded_with(10 * TRAINED, ready(TRAINED)) is None
    assert loaded_with(10 * TRAINED, ready(2 * TRAINED)) is None
    assert loaded_with(8192, ready(8192, trained=0)) is None


def test_a_model_that_is_being_loaded_or_loaded_again_is_left_alone() -> None:
    for state in (ModelState.LOADING, ModelState.DRAINING, ModelState.RESTARTING):
        assert loaded_with(8192, ready()._replace(state=state)) is None
    assert loaded_with(8192, ready()._replace(awaits_reload=True)) is None


def test_a_context_that_it_could_not_be_loaded_with_is_not_tried_again() -> None:
    model = ready()._replace(refused_spec=spec_of(8192))
    assert loaded_with(8192, model) is None
    assert loaded_with(9000, model) is None
    assert loaded_with(8000, model) == 8000
