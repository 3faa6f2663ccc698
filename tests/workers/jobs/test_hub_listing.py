"""How answers of a hub are read, and the messages about its failures, which never have an address or a path."""

from __future__ import annotations

import email.utils
import errno
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from workers.jobs.model_download import huggingface_listing

SECRET = "https://user:password@mirror.example/private/file"
REPO = "owner/repo"


def made(kind: type[Exception], status: int = 0, **headers: str) -> Any:
    """Return an exception of the library as any of its versions makes it."""
    problem = kind.__new__(kind, SECRET)
    problem.args = (SECRET,)
    problem.response = SimpleNamespace(status_code=status, headers=headers)  # type: ignore[attr-defined]
    return problem


def connect_error(text: str) -> Exception:
    return caused(type("ConnectError", (Exception,), {})(text))


def caused(cause: Exception) -> Exception:
    problem: Exception = made(LocalEntryNotFoundError)
    problem.__cause__ = cause
    return problem


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (made(OfflineModeIsEnabled), "offline mode is on"),
        (made(GatedRepoError, 401), "owner/repo is gated"),
        (made(RepositoryNotFoundError, 404), "there is no repository owner/repo"),
        (made(EntryNotFoundError, 404), "a file is gone"),
        (made(HfHubHTTPError, 401), "the hub refuses owner/repo (401)"),
        (made(HfHubHTTPError, 403), "the hub refuses owner/repo (403)"),
        (made(HfHubHTTPError, 500), "the hub answered 500"),
        (caused(made(HfHubHTTPError, 503)), "the hub answered 503"),
        (caused(TimeoutError(SECRET)), "the hub cannot be reached (it does not answer)"),
        (connect_error("[Errno -3] Temporary failure in name resolution"), "resolved: is there a network?)"),
        (connect_error("[Errno 101] Network is unreachable"), "the hub cannot be reached (there is no network)"),
        (connect_error("<urllib3 object>: [Errno 111] Connection refused"), "(it refuses connections)"),
        (OSError(errno.ENOSPC, "No space left on device", "/srv/secret"), "could not be written: No space left"),
        (ValueError(SECRET), "the hub's answer could not be read"),
        (RuntimeError(SECRET), "the transfer broke off (RuntimeError)"),
    ],
)
def test_a_failure_is_explained_without_addresses(problem: Exception, expected: str) -> None:
    reported = huggingface_listing.explain_hub_error(problem, REPO)
    assert expected in str(reported)
    assert "mirror" not in str(reported)
    assert "/srv" not in str(reported)
    assert "password" not in reported.detail


def test_only_an_absent_repository_is_absent() -> None:
    assert huggingface_listing.explain_hub_error(made(RepositoryNotFoundError, 404), REPO).absent
    assert not huggingface_listing.explain_hub_error(made(GatedRepoError, 401), REPO).absent


@pytest.mark.parametrize(
    ("problem", "forbidden"),
    [
        (made(GatedRepoError, 403), True),
        (made(HfHubHTTPError, 401), True),
        (made(HfHubHTTPError, 403), True),
        (made(HfHubHTTPError, 500), False),
        (made(RepositoryNotFoundError, 404), False),
    ],
)
def test_what_the_hub_does_not_give_is_forbidden(problem: Exception, forbidden: bool) -> None:
    assert huggingface_listing.explain_hub_error(problem, REPO).forbidden is forbidden


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("7", 7), ("0", 0), ("date", 100), ("soon", None), ("", None)],
)
def test_retry_after_is_seconds_or_a_date(monkeypatch: pytest.MonkeyPatch, given: str, seconds: float | None) -> None:
    now = datetime(2031, 5, 1, tzinfo=UTC)
    monkeypatch.setattr(huggingface_listing, "datetime", SimpleNamespace(now=lambda _zone: now))
    given = given.replace("date", email.utils.format_datetime(now + timedelta(seconds=100), usegmt=True))
    assert huggingface_listing._retry_after(made(HfHubHTTPError, 429, **{"Retry-After": given})) == seconds


@pytest.mark.parametrize("name", ["../x", "/x", "a//x", "a/./x", "a\\x", "a\nx", "", "a/../x"])
def test_a_name_that_leads_elsewhere_is_not_a_file(name: str) -> None:
    assert not huggingface_listing._is_inside_repository(name)


@pytest.mark.parametrize("etag", ["../../x", "A" * 64, "0" * 63, "", "0" * 64 + "\n"])
def test_a_text_that_is_not_a_digest_names_no_blob(etag: str) -> None:
    assert huggingface_listing._digest(etag) == ""


def test_patience_ends_with_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(huggingface_listing.time, "sleep", pauses.append)
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        raise made(HfHubHTTPError, 502)

    with pytest.raises(HfHubHTTPError):
        huggingface_listing.retry_while_busy(ask)
    assert len(asked) == 3
    assert pauses == sorted(pauses)
    assert sum(pauses) < 3
