"""State files: a pipe or a large file of the same name does not block the server, and no changes are lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol import small_files
from protocol.failures import Code, LemonbusError
from protocol.messages.remote_models import RemoteModel
from protocol.models.memory import HOST
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.small_files import MAX_BYTES
from supervisor.handlers.models import sampling_defaults
from supervisor.handlers.models.sampling_defaults import SamplingDefaultsStore
from supervisor.models import measured_memory, user_aliases
from supervisor.models.catalogues import adopted_models, remote_models, user_models
from supervisor.models.catalogues.adopted_models import AdoptedModels
from supervisor.models.catalogues.remote_models import RemoteModels
from supervisor.models.catalogues.user_models import UserModels
from supervisor.models.measured_memory import MeasuredMemory
from supervisor.models.names import NameIndex
from supervisor.models.options import saved_options
from supervisor.models.options.saved_options import SavedOptions
from supervisor.models.user_aliases import UserAliases
from supervisor.persistence import state_files
from supervisor.persistence.state_files import FinishWrite
from tests.supervisor.models.model_files import PHI, SMOL, MakeModels
from tests.support.waiting import wait_for
from workers.backends.registry import DESCRIPTORS

FILES = [user_models.FILE, saved_options.FILE, sampling_defaults.FILE]


def grown(path: Path) -> Path:
    """Make a file that is too large to be read."""
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_instead_of_a_file_is_reported_and_not_waited_for(make: MakeModels, tmp_path: Path, name: str) -> None:
    models = make()
    path = tmp_path / "state" / name
    path.parent.mkdir()
    os.mkfifo(path)
    for again in (models, make()):
        assert again.resolve(SMOL).recipe
        again.entries(show_all=True)
        problems = list(again.problems)
        SamplingDefaultsStore(tmp_path / "state" / sampling_defaults.FILE, problems.append)
        assert problems == [f"{name} cannot be read: not a regular file"]
    assert path.is_fifo()


def test_nothing_is_registered_over_a_pipe(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    (tmp_path / "state").mkdir()
    os.mkfifo(tmp_path / "state" / user_models.FILE)
    with pytest.raises(LemonbusError, match="cannot be read, so it stays as it is: not a regular file"):
        models.register("user.Phi", PHI)


def test_a_file_that_could_not_be_read_is_replaced_only_after_it_could(tmp_path: Path) -> None:
    path = tmp_path / "params.json"
    os.mkfifo(path)
    store = SamplingDefaultsStore(path, lambda _: None)
    with pytest.raises(LemonbusError, match="could not be read and stays as it is: not a regular file"):
        store.change({"temperature": 0.5})
    assert path.is_fifo()
    path.unlink()
    assert store.change({"temperature": 0.5})
    assert SamplingDefaultsStore(path, lambda _: None).values == {"temperature": 0.5}


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """No file can be read, because too many are open, until this is called."""
    with monkeypatch.context() as patch:

        def fails(_path: Path) -> bytes:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        patch.setattr(small_files, "read_small_file", fails)
        yield patch.undo


def test_sampling_defaults_that_can_be_read_again_are_kept(tmp_path: Path, unreadable: Callable[[], None]) -> None:
    path = tmp_path / "params.json"
    path.write_text('{"top_k": 7}')
    store = SamplingDefaultsStore(path, lambda _: None)
    with pytest.raises(LemonbusError, match="could not be read and stays as it is: Too many open files"):
        store.change({"temperature": 0.5})
    unreadable()
    assert store.change({"temperature": 0.5})
    assert SamplingDefaultsStore(path, lambda _: None).values == {"temperature": 0.5, "top_k": 7}


def test_options_that_can_be_read_again_are_kept(tmp_path: Path, unreadable: Callable[[], None]) -> None:
    path = tmp_path / saved_options.FILE
    path.write_text('{"a": {"ctx_size": 512}}')
    options = SavedOptions(path, lambda _: DESCRIPTORS["llamacpp"])
    with pytest.raises(LemonbusError, match="Too many open files"):
        options.save("b", {"ctx_size": 1024})
    assert options.of("a") == {}
    assert len(options.problems) == 1
    unreadable()
    options.save("b", {"ctx_size": 1024})
    assert options.saved() == {"a": {"ctx_size": 512}, "b": {"ctx_size": 1024}}
    assert json.loads(path.read_text()) == options.saved()


def test_aliases_that_can_be_read_again_are_kept(tmp_path: Path, unreadable: Callable[[], None]) -> None:
    path = tmp_path / user_aliases.FILE
    path.write_text('{"default": "m", "aliases": {"a": "m", "b": "n"}}')
    names = [UserAliases(path) for _ in range(4)]
    with pytest.raises(LemonbusError, match="could not be written"):
        names[0].add_alias("c", "m")
    unreadable()
    names[0].add_alias("c", "m")
    assert json.loads(path.read_text()) == {"default": "m", "aliases": {"a": "m", "b": "n", "c": "m"}}
    names[1].set_default("n")
    assert json.loads(path.read_text()) == {"default": "n", "aliases": {"a": "m", "b": "n", "c": "m"}}
    names[2].drop_alias("c")
    assert json.loads(path.read_text()) == {"default": "n", "aliases": {"a": "m", "b": "n"}}
    names[3].forget("m")
    assert json.loads(path.read_text()) == {"default": "n", "aliases": {"b": "n"}}


def test_lists_of_other_servers_that_can_be_read_again_are_kept(tmp_path: Path, unreadable: Callable[[], None]) -> None:
    path = tmp_path / remote_models.FILE
    path.write_text('{"far": [{"id": "m"}]}')
    remote = RemoteModels(path, ["far", "near"])
    with pytest.raises(LemonbusError, match="could not be written"):
        remote.take("near", [RemoteModel("n")])
    unreadable()
    assert remote.take("near", [RemoteModel("n")])
    assert RemoteModels(path, ["far", "near"]).entries.keys() == remote.entries.keys() == {"far/m", "near/n"}


def test_adopted_models_that_can_be_read_again_are_kept(
    make: MakeModels, tmp_path: Path, unreadable: Callable[[], None]
) -> None:
    path = tmp_path / "state" / adopted_models.FILE
    path.parent.mkdir()
    names = ["o/a:Q8_0", "o/b:Q8_0"]
    path.write_text(json.dumps({name: {"checkpoint": name, "recipe": "llamacpp"} for name in names}))
    first, second = make(), make()
    first.adopted.adopt_checkpoint("o/c:Q8_0", "llamacpp")
    with pytest.raises(LemonbusError, match="could not be written"):
        first.adopted.keep("o/c:Q8_0")
    assert first.find(names[0]) is None
    unreadable()
    first.adopted.keep("o/c:Q8_0")
    assert json.loads(path.read_text()).keys() == {"o/c:Q8_0", *names}
    assert first.find(names[0]) is first.adopted.entries[names[0]]
    second.adopted.forget(names[0])
    assert json.loads(path.read_text()).keys() == {"o/c:Q8_0", names[1]}
    assert (second.find(names[0]), second.adopted.is_kept(names[1])) == (None, True)


def test_measurements_that_can_be_read_again_are_kept(tmp_path: Path, unreadable: Callable[[], None]) -> None:
    path = tmp_path / measured_memory.FILE
    path.write_text('{"x": {"model": "m", "differences": {"host": 1}}}')
    measured = MeasuredMemory(path)
    specs = [ModelSpec(name, "o/m", "llamacpp", "cpu", "llm", f"/{name}.gguf") for name in ("a", "b")]
    measured.note(specs[0], HEAD, {HOST: 2})
    unreadable()
    measured.note(specs[1], HEAD, {HOST: 3})
    assert [each["differences"] for each in json.loads(path.read_text()).values()] == [
        {HOST: size} for size in (1, 2, 3)
    ]


def _aliases(path: Path, finish: FinishWrite) -> Callable[[], object]:
    names = UserAliases(path, finish)
    return lambda: names.set_default("m")


def _sampling(path: Path, finish: FinishWrite) -> Callable[[], object]:
    store = SamplingDefaultsStore(path, lambda _: None, finish)
    return lambda: store.change({"top_k": 7})


def _remote(path: Path, finish: FinishWrite) -> Callable[[], object]:
    remote = RemoteModels(path, ["far"], finish)
    return lambda: remote.take("far", [RemoteModel("m")])


def _measured(path: Path, finish: FinishWrite) -> Callable[[], object]:
    measured = MeasuredMemory(path, finish)
    return lambda: measured.note(ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/m.gguf"), HEAD, {HOST: 2})


def _adopted(path: Path, finish: FinishWrite) -> Callable[[], object]:
    adopted = AdoptedModels(path, [], lambda _: None, NameIndex, finish)
    adopted.adopt_checkpoint("o/c:Q8_0", "llamacpp")
    return lambda: adopted.keep("o/c:Q8_0")


@pytest.mark.parametrize("save_of", [_aliases, _sampling, _remote, _measured, _adopted])
def test_the_same_value_is_written_again_if_the_disk_may_not_have_it(
    tmp_path: Path, save_of: Callable[[Path, FinishWrite], Callable[[], object]]
) -> None:
    results: list[OSError | None] = [OSError(errno.ENOSPC, "No space left on device"), None]

    def finish(draft: Path, target: Path, done: Callable[[OSError | None], None]) -> None:
        failure = results.pop(0)
        if failure is None:
            draft.replace(target)
        done(failure)

    path = tmp_path / "state.json"
    save = save_of(path, finish)
    save()
    assert not path.exists()
    save()
    assert json.loads(path.read_text())
    save()  # a third write would find no result in the list


def _options(path: Path, finish: FinishWrite) -> Callable[[], object]:
    options = SavedOptions(path, lambda _: DESCRIPTORS["llamacpp"], finish=finish)
    return lambda: options.save("m", {"ctx_size": 512})


def _registered(path: Path, finish: FinishWrite) -> Callable[[], object]:
    users = UserModels(path, finish)
    return lambda: users.put("user.a", {"checkpoint": "o/a:Q8_0", "recipe": "llamacpp"})


@pytest.mark.parametrize("save_of", [_aliases, _sampling, _remote, _adopted, _options, _registered])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errno.ENOSPC, Code.INSUFFICIENT_STORAGE),
        (errno.EDQUOT, Code.INSUFFICIENT_STORAGE),
        (errno.EIO, Code.INTERNAL),
    ],
)
def test_a_change_that_a_full_disk_does_not_take_is_refused_as_such(
    tmp_path: Path, save_of: Callable[[Path, FinishWrite], Callable[[], object]], error: int, code: Code
) -> None:
    def finish(draft: Path, _target: Path, _done: Callable[[OSError | None], None]) -> None:
        draft.unlink()
        raise OSError(error, os.strerror(error), str(draft))

    with pytest.raises(LemonbusError, match=os.strerror(error)) as refused:
        save_of(tmp_path / "state.json", finish)()
    failure = refused.value.failure
    assert (failure.code, str(tmp_path) in failure.message, str(tmp_path) in failure.detail) == (code, False, True)


def test_a_file_that_others_may_now_read_has_changed(tmp_path: Path) -> None:
    file = state_files.StateFile(tmp_path / "a.json")
    file.replace({"a": 1})
    assert not file.changed()

    def changed() -> bool:
        file.path.chmod(0o640)
        return file.changed()

    wait_for(changed, "it has another time")


@pytest.mark.parametrize("name", [*FILES, measured_memory.FILE])
def test_a_file_that_is_too_large_is_moved_aside_at_the_start(make: MakeModels, tmp_path: Path, name: str) -> None:
    path = grown(tmp_path / "state" / name)
    problems = make().problems
    SamplingDefaultsStore(tmp_path / "state" / sampling_defaults.FILE, problems.append)
    (aside,) = path.parent.iterdir()
    assert aside.stat().st_size > MAX_BYTES
    assert problems == [f"{name}: larger than 4 MiB; moved aside to {aside.name}"]


def test_registered_models_stay_while_their_file_is_too_large(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    models.register("user.Phi", PHI)
    grown(tmp_path / "state" / user_models.FILE)
    assert models.resolve("user.Phi").recipe
    assert models.problems == [f"{user_models.FILE}: larger than 4 MiB"]
    with pytest.raises(LemonbusError, match="stays as it is"):
        models.register("user.Other", PHI)
    assert state_files.file_version(tmp_path / "state" / user_models.FILE) is not None
