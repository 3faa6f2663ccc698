"""How llama-server writes the prompt cache of a slot into a file and reads it again, and what must match for this."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.models.prompt_caches import KEY_LENGTH
from workers.backends.engine_facts import EngineFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.flag_table import name_of
from workers.backends.llamacpp.flags import FLAGS
from workers.backends.slot_files import SlotReport

MAX_SAVED_FILES: Final = 1_000
MAX_SAVED_BYTES: Final = 4 * 1024**3
"""Limits on a model's prompt caches that clients have saved, checked before another one is saved."""
MIN_FREE_BYTES: Final = 1024**3
"""The part of the disk that these leave free."""
FORMAT: Final = 1
"""Changes when files of older versions must no longer be used."""


class FileIdentity(msgspec.Struct, frozen=True):
    """Identifies a file and its version. ``modified``: nanoseconds; sizes in bytes."""

    path: str
    size: int
    modified: int


class CacheFacts(msgspec.Struct, frozen=True):
    """Everything that the content of a prompt cache depends on, except the prompts."""

    files: list[FileIdentity]
    """The model's files, and others that the engine computes with: a projector, adapters."""
    engine: str
    """The backend, and the build of the engine."""
    context: int
    """Context tokens of a slot."""
    slots: int
    gpu_layers: int = 0
    arguments: list[str] = []
    """The engine's arguments that may change its results, in their order."""


def cache_key(facts: CacheFacts) -> str:
    """Return the key: hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode((FORMAT, facts))).hexdigest()[:KEY_LENGTH]


def identify_files(paths: Sequence[str]) -> list[FileIdentity]:
    """Return the present state of the files; raises OSError for a missing one."""
    found = []
    for path in paths:
        facts = os.stat(path)  # noqa: PTH116 - a path of the engine's arguments stays as it was written
        found.append(FileIdentity(path, facts.st_size, facts.st_mtime_ns))
    return found


class _SlotReport(msgspec.Struct):
    n_saved: int = -1
    n_written: int = -1
    n_restored: int = -1
    n_read: int = -1


class _Saved(msgspec.Struct):
    filename: str = ""


_saved: Final = msgspec.json.Decoder(_Saved).decode
_answer: Final = msgspec.json.Decoder(_SlotReport).decode


class LlamaSlotFiles:
    """The slots of one llama-server."""

    def __init__(
        self,
        folder: Path,
        slots: int,
        facts: Callable[[EngineFacts], CacheFacts],
        changed: Callable[[], bool],
    ) -> None:
        """``facts``: what the content of a slot depends on. ``changed``: whether the engine has read a prompt."""
        self.folder, self.slots = folder, slots
        self._facts, self._changed = facts, changed

    @property
    def changed(self) -> bool:
        """See :class:`~workers.backends.slot_files.SlotFiles`."""
        return self._changed()

    def key(self, facts: EngineFacts) -> str:
        """See :class:`~workers.backends.slot_files.SlotFiles`."""
        return cache_key(self._facts(facts))

    def save(self, slot: int, name: str) -> EngineRequest:
        """See :class:`~workers.backends.slot_files.SlotFiles`."""
        return _request("save", slot, name)

    def restore(self, slot: int, name: str) -> EngineRequest:
        """See :class:`~workers.backends.slot_files.SlotFiles`."""
        return _request("restore", slot, name)

    def report(self, status: int, answer: bytes) -> SlotReport:
        """See :class:`~workers.backends.slot_files.SlotFiles`."""
        if status != 200:
            raise ValueError(f"the engine answered with {status}: {answer[:200].decode('utf-8', 'replace')}")
        try:
            found = _answer(answer)
        except DECODE_ERRORS as problem:
            raise ValueError(str(problem)) from problem
        report = SlotReport(max(found.n_saved, found.n_restored), max(found.n_written, found.n_read))
        if min(report) < 0:
            raise ValueError(f"its answer does not say how much was written or read: {answer[:200]!r}")
        return report


def _request(action: str, slot: int, name: str) -> EngineRequest:
    return EngineRequest("POST", f"/slots/{slot}?action={action}", msgspec.json.encode({"filename": name}), prompts=0)


def slot_request(query: str, body: bytes, folder: Path, slots: int, model: str) -> EngineRequest:
    """Return the request for what a client does with slots: ``GET``, or an action and a slot, such as ``save/0``.

    ``folder``: the engine's, for what is saved. Raises a failure for an action or a slot that does not exist.
    """
    if query == "GET":
        return EngineRequest("GET", "/slots", prompts=0)
    action, _, slot = query.partition("/")
    if action not in ("save", "restore", "erase") or not (slot.isascii() and slot.isdigit()):
        raise invalid(f"unknown slot action {query!r}")
    if int(slot[:9]) >= slots:
        raise Failure(Code.NOT_FOUND, f"{model} has no slot {slot}", param="id").raised()
    if action == "save":
        check_free_space(folder, saved_name(body))
    return EngineRequest("POST", f"/slots/{int(slot)}?action={action}", body or b"{}", prompts=0)


def saved_name(body: bytes) -> str:
    """Return the name in a request to save; empty if there is none, which the engine refuses."""
    try:
        return _saved(body).filename
    except DECODE_ERRORS:
        return ""


def check_free_space(folder: Path, name: str) -> None:
    """Raise ``conflict`` if a client may not save another prompt cache in ``folder``.

    One called ``name`` would be replaced.
    """
    try:
        disk = os.statvfs(folder)
        with os.scandir(folder) as files:
            sizes = [file.stat().st_size for file in files if file.name != name]
    except OSError:
        return  # the engine says what is wrong
    where = f"the saved prompt caches of this model (`slots` in the server's cache directory: {len(sizes)} files)"
    if len(sizes) >= MAX_SAVED_FILES or sum(sizes) >= MAX_SAVED_BYTES:
        reason = f"{where} have reached their limit of {MAX_SAVED_FILES} files and {MAX_SAVED_BYTES >> 30} GiB"
    elif disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
        reason = f"less than {MIN_FREE_BYTES >> 30} GiB of the disk is free, which {where} leave"
    else:
        return
    raise Failure(Code.CONFLICT, f"{reason}: an administrator must remove some files").raised()


def relevant_arguments(words: Sequence[str]) -> list[str]:
    """Return the arguments without those that make no difference to a prompt cache. Pure."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        flag = FLAGS.find(name_of(word))
        if flag is None or flag.cache_key:
            kept.append(word)
        elif "=" not in word:
            next(rest, None)
    return kept


def files_in_arguments(words: Sequence[str]) -> list[str]:
    """Return the files that arguments name, such as adapters: alone, separated by commas, or followed by a colon and a scale."""
    parts = [part for word in words for part in word.split("=", 1)[-1].split(",")]
    paths = [path for part in parts for path in (part, part.rpartition(":")[0])]
    return [path for path in paths if "/" in path and Path(path).is_file()]


def cache_facts(
    model: Sequence[str], words: Sequence[str], backend: str, facts: EngineFacts, gpu_layers: int
) -> CacheFacts:
    """Return what a slot's content depends on; raises OSError for a missing file of the model.

    ``model``: its files; ``words``: the arguments of the administrator and the client.
    """
    kept = relevant_arguments(words)
    return CacheFacts(
        files=identify_files([*model, *files_in_arguments(kept)]),
        engine=f"{backend} {facts.version}",
        context=facts.context,
        slots=facts.slots,
        gpu_layers=gpu_layers,
        arguments=kept,
    )
