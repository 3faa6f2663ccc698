"""The menu of variants, and the choice without a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from gateway.cli.api_client import ApiClient
from gateway.cli.commands.pull import choose_variant
from gateway.cli.exit_codes import CommandError
from tests.gateway.fake_server import FakeServer, Reply, running_fake_server

REPO = "unsloth/Qwen3-8B-GGUF"
OFFER = {
    "checkpoint": REPO,
    "recipe": "llamacpp",
    "suggested_name": "Qwen3-8B-GGUF",
    "suggested_labels": ["vision"],
    "mmproj_files": ["mmproj-model-f16.gguf"],
    "variants": [
        {"name": "Q4_K_M", "primary_file": "a", "files": ["a"], "sharded": False, "size_bytes": 4_920_000_000},
        {"name": "Q8_0", "primary_file": "b", "files": ["b", "c"], "sharded": True, "size_bytes": 8_500_000_000},
    ],
}
Types = Callable[..., None]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def web() -> Iterator[FakeServer]:
    with running_fake_server() as web:
        web.replies["GET", f"/v1/pull/variants?checkpoint={REPO}"] = Reply(OFFER)
        yield web


@pytest.fixture
def server(web: FakeServer) -> ApiClient:
    return ApiClient(web.url)


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Types:
    return lambda *lines: monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        (["1"], "Q4_K_M"),
        (["2"], "Q8_0"),
        ([""], "Q4_K_M"),
        (["3", "IQ2_XXS"], "IQ2_XXS"),
        (["3", "", " folder/model.gguf "], "folder/model.gguf"),
        (["Q6_K"], "Q6_K"),
        (["0", "9", "2"], "Q8_0"),
    ],
)
def test_the_menu(server: ApiClient, types: Types, lines: list[str], chosen: str) -> None:
    types(*lines)
    assert choose_variant(server, REPO) == f"{REPO}:{chosen}"


def test_the_menu_shows_sizes_and_other(server: ApiClient, types: Types, capsys: pytest.CaptureFixture[str]) -> None:
    types("1")
    choose_variant(server, REPO)
    output = capsys.readouterr()
    assert output.out == ""
    shown = output.err.splitlines()
    assert shown[:3] == [REPO, "  1  Q4_K_M  4.9 GB", "  2  Q8_0    8.5 GB  2 files"]
    assert shown[3].startswith("  3  Other")


def test_the_end_of_input_ends_the_menu(server: ApiClient, types: Types) -> None:
    types()
    with pytest.raises(click.Abort):
        choose_variant(server, REPO)


def test_without_a_terminal_the_first_variant_is_chosen(
    server: ApiClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()  # no input ever comes, so reading it would hang
    with os.fdopen(read) as silent, os.fdopen(write, "w"):
        monkeypatch.setattr(sys, "stdin", silent)
        assert choose_variant(server, f"hf:{REPO}") == f"{REPO}:Q4_K_M"
    assert "Taking Q4_K_M" in capsys.readouterr().err


def test_a_checkpoint_with_a_variant_needs_no_choice(server: ApiClient, web: FakeServer) -> None:
    assert choose_variant(server, f"{REPO}:Q2_K") == f"{REPO}:Q2_K"


def test_a_repository_without_models_is_refused(server: ApiClient, web: FakeServer, types: Types) -> None:
    web.replies["GET", "/v1/pull/variants?checkpoint=o/r"] = Reply({**OFFER, "variants": []})
    with pytest.raises(CommandError, match="has no GGUF model"):
        choose_variant(server, "o/r")


def test_the_servers_error_is_printed(server: ApiClient, web: FakeServer) -> None:
    refusal = {"status": "error", "message": "there is no repository o/r", "error": {"message": "no", "code": "x"}}
    web.replies["GET", "/v1/pull/variants?checkpoint=o/r"] = Reply(refusal, 404)
    with pytest.raises(CommandError, match="no"):
        choose_variant(server, "o/r")
