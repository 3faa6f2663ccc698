"""``user_models.json``: the models that its entries define, and the effect of mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.failures import LemonbusError
from supervisor.models.catalogues.user_models import FILE as USER_FILE
from tests.supervisor.models.model_files import PHI, SMOL, MakeModels, user_file


def test_user_models_get_their_prefix_and_labels(make: MakeModels, tmp_path: Path) -> None:
    two = {"checkpoints": {"main": "o/r:Q4_0", "mmproj": "o/r:mmproj-F16.gguf"}, "recipe": "llamacpp", "vision": True}
    user_file(
        tmp_path, {"Phi": {**PHI, "reasoning": True}, "user.Two": two, "Embed": {**PHI, "labels": ["embeddings"]}}
    )
    models = make()
    assert models.problems == []
    assert models.resolve("user.Phi").labels == ["reasoning"]
    assert models.resolve("user.Two").sources[0].mmproj == "mmproj-F16.gguf"
    assert models.entry("user.Embed").type == "embedding"
    assert models.entry("user.Phi").dtype == "Q8_0"


def test_a_bad_entry_is_reported_once_and_skipped(make: MakeModels, tmp_path: Path) -> None:
    user_file(tmp_path, {"Good": PHI, "Bad": {"recipe": 5}, "": PHI, "a\0b": PHI})
    models = make()
    assert models.resolve("user.Good").recipe == "llamacpp"
    assert len(models.problems) == 2
    assert all(USER_FILE in problem and "skipped" in problem for problem in models.problems)
    models.problems.clear()
    models.entries(show_all=True)
    assert models.problems == []


@pytest.mark.parametrize("content", [b"", b"{", b'["x"]', b"\xff", b'{"a":' * 5000])
def test_a_broken_file_is_moved_aside_and_the_server_starts(make: MakeModels, tmp_path: Path, content: bytes) -> None:
    path = user_file(tmp_path, content)
    models = make()
    assert models.resolve(SMOL).recipe
    (aside,) = path.parent.iterdir()
    assert aside.name.startswith(f"{USER_FILE}.broken-")
    assert aside.read_bytes() == content
    assert aside.name in models.problems[0]


def test_an_edited_file_counts_at_once_and_an_error_in_it_loses_nothing(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    path = user_file(tmp_path, {"Phi": PHI})
    assert models.resolve("user.Phi").recipe
    user_file(tmp_path, b'{"Phi": ')
    assert models.resolve("user.Phi").recipe
    assert path.exists()
    assert len(models.problems) == 1
    path.unlink()
    with pytest.raises(LemonbusError):
        models.resolve("user.Phi")
