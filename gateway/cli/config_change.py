"""Changes this machine's configuration file: checks the new text, replaces the file, and has the running server read it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from gateway.api.operator.reload import ReloadAnswer, ReloadRequest, reload_configuration
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import UNREACHABLE, USAGE, CommandError
from gateway.cli.settings import recipe_warnings, resolved_text
from protocol import small_files
from protocol.config.config_file import MAX_FILE_BYTES, config_paths
from protocol.config.resolver import ResolvedSettings

_REFUSED: Final = (400, 409)
"""What the server answers to a wrong file, and to an address at which it cannot listen."""


class ChangedFile(NamedTuple):
    """A configuration file that was changed."""

    file: Path
    change: Literal["made", "changed", "unchanged"]
    """``unchanged``: it said this already."""
    warnings: str
    """Lines about what it says, which the server's answer has as well."""
    resolved: ResolvedSettings
    """What it means with the environment of this command."""
    answer: ReloadAnswer | None
    """What the running server has done with it; None: no server is running."""


def change_file(config: str, edit: Callable[[str], str], server: ApiClient | None) -> ChangedFile:
    """Change the text of the configuration file, and reload ``server``; raises ``CommandError``.

    If the text is wrong, nothing is written; if the server refuses it, the file is put back. ``config``: the value of
    ``--config``.
    """
    file = _chosen(config_paths(os.environ, config))
    is_new = not file.parent.exists()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.parent):
            return _change(file, edit, server)
    except OSError as problem:
        raise CommandError(f"{file}: {problem.strerror}; the file is unchanged", USAGE) from problem
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                file.parent.rmdir()


def read_chosen(config: str) -> tuple[Path, str]:
    """Return the file that :func:`change_file` would change, and its text; raises ``CommandError``."""
    file = _chosen(config_paths(os.environ, config))
    try:
        return file, _text(file, _content(file))
    except OSError as problem:
        raise CommandError(f"{file}: {problem.strerror}", USAGE) from problem


def _text(file: Path, content: bytes | None) -> str:
    """Return the text of a file, which is valid TOML; raises ``CommandError``."""
    try:
        text = (content or b"").decode()
        tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise CommandError(f"{file}: only a person can mend this file: {problem}", USAGE) from problem
    return text


def _chosen(paths: list[Path]) -> Path:
    """Return the file that is there, else the first one that would be looked for."""
    return next((path for path in paths if path.exists()), paths[0])


def _change(file: Path, edit: Callable[[str], str], server: ApiClient | None) -> ChangedFile:
    before = _content(file)
    text = _text(file, before)
    new = edit(text)
    try:
        found = resolved_text(str(file), new)
        warnings = recipe_warnings(found)
    except CommandError as problem:
        raise CommandError(f"{_without_line(str(problem), file)}; the file is unchanged", USAGE) from problem
    if new != text:
        _replace(file, before, new.encode())
    try:
        answer = _reload(server)
    except CommandError as problem:
        if problem.status in _REFUSED and new != text:
            _put_back(file, before)
            reason = f"the server refuses this, and the file is as it was: {_without_line(str(problem), file)}"
            raise CommandError(reason, status=problem.status, facts=problem.facts) from problem
        unread = f"the server may not have read {file}; `lemonbus reload` tries again: {problem}"
        raise CommandError(unread, problem.exit_code, problem.status, problem.facts) from problem
    return ChangedFile(
        file, "made" if before is None else "unchanged" if new == text else "changed", warnings, found, answer
    )


def _without_line(reason: str, file: Path) -> str:
    """Return a reason without the line, which no file has."""
    return re.sub(rf"^{re.escape(str(file))}:\d+: ", "", reason)


def _reload(server: ApiClient | None) -> ReloadAnswer | None:
    if server is None:
        return None
    try:
        return server.ask(reload_configuration, ReloadRequest(), seconds=None)
    except CommandError as problem:
        if problem.exit_code == UNREACHABLE:
            return None
        raise


def _content(file: Path) -> bytes | None:
    """Return what is in the file, None if there is none."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > MAX_FILE_BYTES:
        raise CommandError(f"{file}: expected at most {MAX_FILE_BYTES >> 10} KiB, and it has more", USAGE)
    return content


def _put_back(file: Path, before: bytes | None) -> None:
    if before is None:
        file.resolve().unlink()  # a link stays a link
    else:
        _replace(file, _content(file), before)


def _replace(file: Path, expected: bytes | None, content: bytes) -> None:
    """Replace the file as a whole, with its owner and its rights; raises OSError, and the file is unchanged.

    ``expected``: what was read; an editor may have written another version since.
    """
    target = file.resolve()  # a link stays a link
    with small_files.private_draft(target, content, lasting=True) as draft:
        if expected is not None:
            owner = target.stat()
            os.chown(draft, owner.st_uid, owner.st_gid)
            shutil.copystat(target, draft)
            os.utime(draft)  # it is changed now
        _check_unchanged(target, expected)
        draft.replace(target)


def _check_unchanged(file: Path, expected: bytes | None) -> None:
    if _content(file) != expected:
        raise CommandError(f"{file} was changed meanwhile; nothing is written")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let no other such command change a file in the folder meanwhile; raises ``CommandError`` if one does."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"another command is changing a file in {folder}; try again") from None
        yield
    finally:
        os.close(directory)
