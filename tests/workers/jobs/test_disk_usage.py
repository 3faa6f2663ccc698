"""The job that measures the disk and removes what nothing uses, with real files, links and locks."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.config.settings import Settings
from protocol.messages.disk_usage import DiskItem, DiskItemKind, DiskJobFailed, DiskReport, StartDiskJob, StoredModel
from protocol.models.installations import RECORD_FILE, InstallationRecord
from protocol.models.prompt_caches import EntryName, model_digest
from supervisor.models.catalogues import adopted_models, user_models
from supervisor.persistence.state_files import move_broken_file
from workers.jobs import disk_usage

KB = 64 * 1024
WHEEL = StoredModel("wheel-model", [("wheel:known==1.0#in/m.gguf", "")])
HUB = StoredModel("hub-model", [("o/r:Q4_0", "")])
OLD_S = 1_000_000_000.0


class ServerFiles:
    """The directories of a server."""

    def __init__(self, root: Path) -> None:
        self.root, self.cache, self.hub = root, root / "cache", root / "hub"
        self.settings = Settings(cache_dir=str(self.cache), state_dir=str(root / "state"), runtime_dir=str(root / "r"))

    def write(self, path: str, size: int = KB, *, old: bool = True) -> Path:
        """Write a file, an hour or more ago."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
        if old:
            os.utime(file, (OLD_S, OLD_S))
        return file

    def engine(self, version: str, written: float, backend: str = "cpu") -> Path:
        """Install a version."""
        folder = self.cache / "backends" / "llamacpp" / backend / f"{version}-d1"
        self.write(str(folder.relative_to(self.root) / "files" / "program"))
        record = folder / RECORD_FILE
        record.write_bytes(msgspec.json.encode(InstallationRecord("llamacpp", backend, version, "d1")))
        os.utime(record, (written, written))
        return folder

    def prompt_cache(self, model: str) -> Path:
        folder = f"cache/prompt_caches/{EntryName(model_digest(model), 'a' * 32, 1)}"
        self.write(f"{folder}/slot-0")
        return self.write(f"{folder}/manifest.json", 10).parent

    def report(self, *models: StoredModel, **order: Any) -> DiskReport:
        return disk_usage.report(self.settings, StartDiskJob(list(models), **order))

    def prune(self, *models: StoredModel, **order: Any) -> DiskReport:
        return self.report(*models, only_unused=True, remove=True, **order)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerFiles:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return ServerFiles(tmp_path)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock, as a download does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def by_path(report: DiskReport) -> dict[str, DiskItem]:
    return {item.path: item for item in report.items}


def test_everything_is_listed_with_what_uses_it(server: ServerFiles) -> None:
    model = server.write("cache/models/known-1.0/m.gguf", 4 * KB)
    blob = server.write("hub/models--o--r/blobs/e1", 3 * KB)
    snapshot = server.hub / "models--o--r" / "snapshots" / "main" / "x-Q4_0.gguf"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(blob)
    part = server.write("hub/models--o--r/blobs/e2.incomplete", 2 * KB)
    old, new = server.engine("1", OLD_S), server.engine("2", OLD_S + 1)
    cache = server.prompt_cache("hub-model")
    server.write("state/usage.sqlite3", KB)
    server.write("state/files/file-1.data", KB)
    server.write("state/batches/batch_1/output.jsonl", KB)
    server.write("extra/a-00001-of-00002.gguf", KB)
    server.write("extra/a-00002-of-00002.gguf", KB)
    extra = StoredModel("extra.a", files=[str(server.root / "extra" / "a-00001-of-00002.gguf")])
    report = server.report(WHEEL, HUB, extra, StoredModel("missing", [("o/other", "")]))
    found = by_path(report)
    assert {(item.kind, item.name, item.unused != "") for item in report.items} == {
        (DiskItemKind.MODEL, "wheel-model", False),
        (DiskItemKind.MODEL, "hub-model", False),
        (DiskItemKind.MODEL, "extra.a", False),
        (DiskItemKind.PARTIAL, "o/r", True),
        (DiskItemKind.ENGINE, "llamacpp:cpu 1", True),
        (DiskItemKind.ENGINE, "llamacpp:cpu 2", False),
        (DiskItemKind.PROMPT_CACHE, "hub-model", False),
        (DiskItemKind.STATE, "batches", False),
        (DiskItemKind.STATE, "files of clients", False),
        (DiskItemKind.STATE, "state", False),
    }
    assert (found[str(model)].size, found[str(snapshot)].size) == (4 * KB, 3 * KB)
    assert found[extra.files[0]].size == 2 * KB
    assert found[str(old)].unused == "2 replaces it"
    assert report.total == sum(item.size for item in report.items)
    assert [item.size for item in report.items] == sorted((item.size for item in report.items), reverse=True)
    assert report.freed == 0
    assert all(path.exists() for path in (model, part, old, new, cache))


def test_what_models_share_counts_once(server: ServerFiles) -> None:
    file = server.write("extra/a.gguf", 2 * KB)
    (server.root / "extra" / "b.gguf").hardlink_to(file)
    own = server.write("extra/p.gguf", KB)
    models = [
        StoredModel("a", files=[str(file)]),
        StoredModel("b", files=[str(server.root / "extra" / "b.gguf"), str(own)]),
    ]
    report = server.report(*models)
    assert [(item.name, item.size, item.shared) for item in report.items] == [
        ("b", 3 * KB, 2 * KB),
        ("a", 2 * KB, 2 * KB),
    ]
    assert report.total == 3 * KB


def test_what_nothing_uses_is_removed_and_nothing_else(server: ServerFiles) -> None:
    used = [
        server.write("cache/models/known-1.0/m.gguf"),
        server.write("cache/models/paused-1.0/.staging/part.whl"),
        server.write("hub/models--o--r/blobs/e1"),
        server.write("hub/models--not--ours/blobs/e3.incomplete"),
        server.write("hub/models--p--paused/blobs/e4.incomplete"),
        server.write("cache/models/begun-1.0/file", old=False),
        server.write("cache/something/else"),
        server.write("state/user_models.json"),
        server.engine("2", OLD_S + 1),
        server.engine("1", OLD_S, "vulkan"),
        server.engine("2", OLD_S + 1, "vulkan"),
        server.prompt_cache("hub-model"),
    ]
    unused = [
        server.write("cache/models/known-1.0/.staging/part.whl", 2 * KB).parent,
        server.write("cache/models/lost-1.0/in/m.gguf", 3 * KB).parents[1],
        server.write("cache/models/.gone-1-x/m.gguf").parent,
        server.write("hub/models--o--r/blobs/e2.incomplete", 5 * KB),
        server.engine("1", OLD_S),
        server.write("cache/backends/llamacpp/cpu/.draft/files/program").parents[1],
        server.write("cache/backends/llamacpp/cpu/.download-abc"),
        server.prompt_cache("deleted"),
        server.write("cache/prompt_caches/.draft-1/slot-0").parent,
    ]
    models = [
        WHEEL,
        HUB,
        StoredModel("paused", [("wheel:paused==1.0#m", "")]),
        StoredModel("paused-too", [("p/paused", "")]),
    ]
    order: Any = {"downloads": ["paused", "paused-too"], "used_backends": ["llamacpp/vulkan"]}
    shown = server.report(*models, only_unused=True, **order)
    assert all(path.exists() for path in unused)
    report = server.prune(*models, **order)
    assert set(by_path(report)) == set(by_path(shown)) == {str(path) for path in unused}
    assert all(item.removed and item.unused and not item.kept for item in report.items)
    assert [path for path in unused if path.exists()] == []
    assert [path for path in used if not path.exists()] == []
    assert report.freed == report.total == sum(item.freed for item in report.items) == shown.total
    assert server.prune(*models, **order).items == []


@pytest.mark.parametrize("file", [user_models.FILE, adopted_models.FILE])
def test_while_a_damaged_file_may_name_models_their_files_stay(file: str, server: ServerFiles) -> None:
    damaged = server.write(f"state/{file}")
    move_broken_file(damaged)
    files = [server.write("cache/models/lost-1.0/m.gguf").parent, server.prompt_cache("lost")]
    partial = server.write("cache/models/.gone-1-x/m.gguf").parent
    items = by_path(server.prune())
    assert [path.exists() for path in (*files, partial)] == [True, True, False]
    (aside,) = (server.root / "state").iterdir()
    for path in files:
        assert (items[str(path)].removed, aside.name in items[str(path)].kept) == (False, True)
    aside.unlink()
    server.prune()
    assert [path.exists() for path in files] == [False, False]


def test_kept_prompt_caches_of_models_are_removed_if_that_is_asked_for(server: ServerFiles) -> None:
    cache = server.prompt_cache("hub-model")
    assert server.prune(HUB).items == []
    (item,) = server.prune(HUB, prompt_caches=True).items
    assert (item.kind, item.name, item.removed) == (DiskItemKind.PROMPT_CACHE, "hub-model", True)
    assert not cache.exists()


def test_what_another_process_is_writing_stays(server: ServerFiles) -> None:
    used = [
        server.write("cache/models/known-1.0/.staging/part.whl").parent,
        server.write("cache/models/lost-1.0/m.gguf").parent,
        server.write("hub/models--o--r/blobs/e2.incomplete"),
        server.engine("1", OLD_S),
        server.write("cache/prompt_caches/.draft-1/slot-0").parent,
    ]
    server.engine("2", OLD_S + 1)
    with (
        held(server.cache / "models" / "known-1.0" / ".lock"),
        held(server.cache / "models" / "lost-1.0" / ".lock"),
        held(server.hub / ".locks" / "models--o--r" / "e2.lock"),
        held(server.cache / "backends" / "llamacpp" / "cpu" / ".lock"),
        held(used[-1]),
    ):
        report = server.prune(WHEEL, HUB)
    assert set(by_path(report)) == {str(path) for path in used}
    assert {(item.removed, item.freed, item.kept) for item in report.items} == {
        (False, 0, "another process is using it")
    }
    assert [path for path in used if not path.exists()] == []
    assert server.prune(WHEEL, HUB).freed == report.total


def test_files_of_a_loaded_model_stay_even_if_no_model_has_their_name(server: ServerFiles) -> None:
    file = server.write("cache/models/lost-1.0/m.gguf")
    assert server.prune(used_files=[str(file)]).items == []
    link = server.root / "extra" / "a.gguf"
    link.parent.mkdir()
    link.symlink_to(file)
    assert server.prune(StoredModel("extra.a", files=[str(link)])).items == []
    assert file.exists()


def test_links_are_not_followed(server: ServerFiles) -> None:
    outside = server.write("outside/private.gguf")
    folders = {
        "cache/models/link-1.0": outside.parent,
        "cache/models/known-1.0/.staging": outside.parent,
        "cache/backends/llamacpp/cpu/.draft": outside.parent,
        "cache/prompt_caches/.draft-1": outside.parent,
        "hub/models--o--r/blobs": outside.parent,
    }
    server.write("outside/e2.incomplete")
    for name, target in folders.items():
        (server.root / name).parent.mkdir(parents=True, exist_ok=True)
        (server.root / name).symlink_to(target)
    lost = server.write("cache/models/lost-1.0/m.gguf").parent
    (lost / "also").symlink_to(outside)
    report = server.prune(WHEEL, HUB)
    assert [(item.path, item.size, item.removed) for item in report.items] == [(str(lost), KB, True)]
    assert sorted(path.name for path in outside.parent.iterdir()) == ["e2.incomplete", "private.gguf"]
    assert all((server.root / name).is_symlink() for name in folders)


def test_names_that_are_not_utf8_are_shown_with_marks(server: ServerFiles) -> None:
    server.write(os.fsdecode(b"cache/models/\xff/model.gguf"))
    (item,) = msgspec.msgpack.decode(msgspec.msgpack.encode(server.prune()), type=DiskReport).items
    assert (item.name, item.path, item.removed) == ("?", str(server.cache / "models" / "?"), True)


def test_a_file_with_another_name_frees_nothing(server: ServerFiles) -> None:
    file = server.write("cache/models/lost-1.0/m.gguf")
    (server.root / "kept.gguf").hardlink_to(file)
    (item,) = server.prune().items
    assert (item.size, item.removed, item.freed) == (KB, True, 0)


def test_what_cannot_be_removed_is_not_said_to_be(server: ServerFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    server.write("cache/models/lost-1.0/m.gguf", 2 * KB)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_arguments, **_more: None)
        (item,) = server.prune().items
    assert (item.removed, item.freed, item.kept) == (False, 0, "not all of it could be removed")
    # The next removal finds it under its new name.
    (item,) = server.prune().items
    assert (item.removed, item.freed) == (True, 2 * KB)


def test_whatever_goes_wrong_is_an_answer(server: ServerFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(disk_usage, "find_all", broken)
    failed = disk_usage.carry_out(server.settings, StartDiskJob([]))
    assert isinstance(failed, DiskJobFailed)
    assert failed.failure.message == "the disk could not be examined"


def test_parts_belong_to_the_models_that_are_here(server: ServerFiles) -> None:
    """A part that several models have does not make one of them a model that is here."""
    for file in ("a/main.gguf", "t/t.gguf", "v/alone.gguf"):
        server.write(f"hub/models--o--{file.partition('/')[0]}/snapshots/1/{file.partition('/')[2]}")
    here = StoredModel("a", [("o/a:main.gguf", "")], parts=["o/t:t.gguf"])
    absent = StoredModel("b", [("o/b:main.gguf", "")], parts=["o/t:t.gguf"])
    broken_off = StoredModel("c", [("o/c:main.gguf", "")], parts=["o/t:t.gguf", "o/v:alone.gguf"])
    chat = StoredModel("chat", [("o/t:t.gguf", "")])
    found = {item.name: (item.size, item.shared) for item in server.report(absent, here, broken_off, chat).items}
    assert found == {"a": (2 * KB, KB), "chat": (KB, KB), "c": (KB, 0)}
    part = server.write("hub/models--o--v/blobs/x.incomplete")
    assert [item.path for item in server.prune(broken_off).items] == [str(part)]
