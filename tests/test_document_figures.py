"""The documents have the limits, times and commands of the code, so that a figure cannot change in only one of them."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from gateway.api.openai.echoed_prompts import MAX_RUN_TOKENS, MAX_SCORED_TOKENS
from gateway.bus.supervisor_connection import MAX_WAITING
from gateway.cli.exit_codes import EXIT_CODE_HELP
from gateway.cli.main import cli
from gateway.decoding import limits
from gateway.fetching.request_images import MAX_IMAGE_BYTES, MAX_IMAGES
from gateway.requests.admission_states import MAX_WAIT_FOR_SUPERVISOR_S
from gateway.server.gunicorn_master import KEEP_ALIVE_S
from protocol.config.config_file import MAX_FILE_BYTES
from protocol.config.settings import Settings
from supervisor.keeper.heartbeat import SILENCE_S
from supervisor.metrics.collection import COLLECTION_TIMEOUT_S
from supervisor.metrics.server_metrics import DOCUMENTED_DURATION_BUCKETS
from supervisor.recovery.takeover import TIMEOUT_S
from workers.backends.flm.backend import MAX_CONNECTIONS
from workers.engine_servers.oga_server import guidance

ROOT = Path(__file__).resolve().parent.parent
DEFAULTS = Settings()
BUCKETS = ", ".join(f"{seconds:g}" for seconds in DOCUMENTED_DURATION_BUCKETS)


@pytest.mark.parametrize(
    ("document", "statement"),
    [
        ("docs/apis.md", f"newest {DEFAULTS.response_store_entries} responses in memory"),
        ("docs/apis.md", f"at most {DEFAULTS.response_store_bytes >> 20} MiB, for a day"),
        ("docs/configuration.md", f"may have {MAX_FILE_BYTES >> 20} MiB"),
        ("docs/media.md", f"{MAX_IMAGES} images of {MAX_IMAGE_BYTES >> 20} MiB each"),
        (
            "docs/media.md",
            f"{limits.MAX_MEDIA} images and recordings, {limits.MAX_SIDE_PIXELS} pixels a side",
        ),
        ("docs/media.md", f"{limits.MAX_PIXELS:,} pixels together"),
        (
            "docs/media.md",
            f"{limits.DECODER_MEMORY / 2**30:g} GiB of address space and {limits.DECODE_TIMEOUT_S:g} processor",
        ),
        ("docs/media.md", f"does not answer for {limits.DECODE_DEADLINE_S:g} s is killed"),
        ("docs/media.md", f"`fetch_images_timeout` ({DEFAULTS.fetch_images_timeout:g} s)"),
        ("docs/supervisor.md", f"hangs for {SILENCE_S:g} s"),
        ("docs/supervisor.md", f"not answered after {TIMEOUT_S:g} s"),
        (
            "docs/supervisor.md",
            f"up to {MAX_WAIT_FOR_SUPERVISOR_S:g} s without any supervisor and {MAX_WAITING:,} requests",
        ),
        ("docs/metrics.md", f"at most {COLLECTION_TIMEOUT_S * 1000:g} ms"),
        ("docs/metrics.md", f"`metrics_models` models ({DEFAULTS.metrics_models})"),
        ("docs/metrics.md", f"{BUCKETS} s"),
        ("docs/compatibility.md", f"scores at most {MAX_SCORED_TOKENS:,} tokens"),
        ("docs/engines/llamacpp.md", f"demands up to {MAX_RUN_TOKENS} tokens in one request"),
        ("docs/limits.md", f"in runs of up to {MAX_RUN_TOKENS} tokens"),
        ("docs/proxies.md", f"after {KEEP_ALIVE_S} s"),
        ("docs/operating.md", f"`breaker_deaths` ({DEFAULTS.breaker_deaths}) within a minute"),
        ("docs/operating.md", f"`peer_silence` ({DEFAULTS.peer_silence:g} s)"),
        ("docs/proxies.md", f"`header_silence` ({DEFAULTS.header_silence:g} s)"),
        ("docs/engines/flm.md", f"`--socket {MAX_CONNECTIONS}`"),
        ("docs/engines/oga.md", f"{guidance.MAX_ITEMS:,} items"),
        ("docs/engines/oga.md", f"{guidance.MAX_BYTES >> 10} KiB"),
        ("deploy/systemd/lemonbus.service", f"for `grace` seconds ({DEFAULTS.grace:g})"),
    ],
)
def test_a_figure_is_the_one_of_the_code(document: str, statement: str) -> None:
    assert statement in " ".join((ROOT / document).read_text().split())


def test_the_readme_has_figures_of_the_page_about_performance() -> None:
    (table,) = re.findall(r"^## Performance\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| .*\|$", table, re.MULTILINE)
    assert len(rows) > 10
    assert set(rows) <= set((ROOT / "docs" / "performance.md").read_text().splitlines())


def test_the_page_has_the_exit_codes_of_the_command_line() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    for code in re.findall(r"^(?:Exit codes: )?(\d+) ", EXIT_CODE_HELP.replace("; ", "\n"), re.MULTILINE):
        assert re.search(rf"[:;]\s{code}\s", page), code


def test_the_page_lists_the_commands() -> None:
    table = (ROOT / "docs" / "command-line.md").read_text().split("\n## ")[0]
    named = set(re.findall(r"[`, ]([a-z-]+)(?=[ `\[])", " ".join(re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE))))
    assert set(cli.list_commands(click.Context(cli))) <= named


def test_the_documents_use_flags_that_exist() -> None:
    context = click.Context(cli)
    wrong = []
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for name, rest in re.findall(r"lemonbus ([a-z-]+)((?: [^`\n]*)?)", document.read_text()):
            command = cli.get_command(context, name)
            if isinstance(command, click.Group) and rest.split():
                command = command.get_command(context, rest.split()[0])
            if command is None:
                continue
            flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
            words = rest.split(" # ")[0].split(" -- ")[0]  # what follows is for another program
            used = re.findall(r"(?<![\w'=-])(--[a-z][a-z-]*)", words)
            wrong += [f"{document.name}: lemonbus {name} {flag}" for flag in used if flag not in {*flags, "--help"}]
    assert wrong == []
