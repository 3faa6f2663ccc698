"""The structure of the code, read off its source: which package, folder and library may be imported where."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest

from tests.support.source_code import FILES, PACKAGES, ROOT, TESTS, imports, name, within

TEST_IMPORT = re.compile(r"^\s*(from|import) (\.|[^\n(]*\btest_|[^\n(]*\([^)]*\btest_)", re.MULTILINE)
"""A pattern for imports of test files and for relative imports."""


ALLOWED_IMPORTS = {
    "protocol": set(),
    "supervisor": {"protocol", "workers.backends"},
    "workers": {"protocol"},
    "gateway": {"protocol"},
}
"""What a package may import besides itself."""


ONLY_IN = {
    "zmq": (
        "protocol/wire/frames.py",
        "protocol/wire/bus_connection.py",
        "protocol/wire/curve.py",
        "supervisor/bus/remote_router.py",
        "supervisor/bus/sockets.py",
        "supervisor/node_agent/agent_link.py",
        "workers/worker/bus.py",
        "gateway/bus/log_sender.py",
        "gateway/bus/sockets.py",
    ),
    "falcon": ("gateway/",),
    "gunicorn": ("gateway/",),
    "gevent": ("gateway/",),
    "greenlet": ("gateway/server/acceptor.py",),
    "huggingface_hub": ("workers/jobs/",),
    "ray": ("workers/jobs/ray_cluster/",),
    "subprocess": (
        "gateway/cli/settings.py",
        "supervisor/processes/child_processes.py",
        "workers/engine/process.py",
        "workers/engine_servers/kokoro_server/espeak.py",
        "workers/jobs/",
    ),
    "psutil": (
        "supervisor/machine/",
        "supervisor/models/compatibility.py",
        "supervisor/processes/",
    ),
    "prometheus_client": (
        "supervisor/metrics/engine_families.py",
        "supervisor/metrics/exposition.py",
    ),
    "sqlite3": ("supervisor/usage/store.py",),
    "multiprocessing": (),
    "asyncio": (),
    "pickle": (),
    "requests": ("gateway/cli/api_client.py", "workers/jobs/"),
    "urllib3": ("gateway/cli/api_client.py", "gateway/fetching/", "workers/jobs/"),
    "certifi": ("gateway/fetching/image_fetch.py",),
    "yaml": ("supervisor/imports/llama_swap.py",),
    "click": ("gateway/cli/",),
    "rich": ("gateway/cli/",),
    "xllamacpp": ("workers/engine_servers/",),
    "onnxruntime": ("workers/engine_servers/",),
    "onnxruntime_genai": ("workers/engine_servers/",),
    "av": ("workers/engine_servers/",),
    "pynvml": ("workers/jobs/device_memory/nvidia.py",),
    "PIL": ("gateway/decoding/images.py", "workers/"),
    "multipart": ("protocol/wire/form_data.py",),
    "threading": (
        "supervisor/machine/disk_space.py",
        "supervisor/persistence/disk_thread.py",
        "workers/prompt_cache/disk_thread.py",
        "gateway/cli/",
        "workers/jobs/",
        "workers/engine_servers/",
    ),
}
"""Each library has its place; nowhere else."""


COMPOSING_FOLDERS = {
    "supervisor/lifecycle": ("supervisor/__main__.py", "supervisor/gateway_host/__main__.py"),
    "workers/worker": ("workers/__main__.py", "workers/jobs/job.py"),
}
"""Folder that combines others → the files outside it that may import it."""


LAYERED_FOLDERS = {
    "protocol": True,
    "gateway": True,
    "supervisor": False,
    "supervisor/models": False,
    "supervisor/scheduler": False,
    "workers": False,
    "workers/jobs": False,
}
"""Folder whose subfolders do not import each other in a circle → whether they count with all that is inside them, one by one.

Where they do not, a folder's own files list its subfolders (recipes, jobs, events) and have what these share.
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_allowed_packages(package: str) -> None:
    allowed = ALLOWED_IMPORTS[package] | {package}
    wrong = [
        f"{name(path)} imports {module}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] == package
        for module in imports(path)
        if module.split(".")[0] in PACKAGES and not any(within(module, one) for one in allowed)
    ]
    assert not wrong


@pytest.mark.parametrize("library", ONLY_IN)
def test_libraries_are_imported_only_where_allowed(library: str) -> None:
    wrong = [
        f"{name(path)} imports {module}"
        for path in FILES
        for module in imports(path)
        if within(module, library) and not name(path).startswith(ONLY_IN[library])
    ]
    assert not wrong


@pytest.mark.parametrize("folder", COMPOSING_FOLDERS)
def test_no_other_folder_imports_one_that_composes_others(folder: str) -> None:
    wrong = [
        f"{name(path)} imports {module}"
        for path in FILES
        if not name(path).startswith((f"{folder}/", *COMPOSING_FOLDERS[folder]))
        for module in imports(path)
        if within(module, folder.replace("/", "."))
    ]
    assert not wrong


def subfolder_of(module: str, folder: str, *, nested: bool) -> str:
    """Return the subfolder of a folder that contains a module. A file next to all folders of its package counts by itself."""
    parts = module.split(".") if nested else module.split(".")[: folder.count("/") + 2]
    is_folder = (ROOT.joinpath(*parts) / "__init__.py").exists()
    return ".".join(parts if is_folder or len(parts) == 2 else parts[:-1])


@pytest.mark.parametrize("folder", LAYERED_FOLDERS)
def test_folders_do_not_import_each_other_in_a_circle(folder: str) -> None:
    nested, outer = LAYERED_FOLDERS[folder], folder.replace("/", ".")
    found: dict[str, dict[str, str]] = {}  # subfolder → subfolder that it imports → the import
    for path in (ROOT / folder).rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        own = subfolder_of(module, folder, nested=nested)
        for imported in imports(path):
            other = subfolder_of(imported, folder, nested=nested)
            if within(imported, outer) and other != own and outer not in (own, other):
                found.setdefault(own, {}).setdefault(other, f"{name(path)} imports {imported}")
    circle: list[str] = []  # each is imported by the next one
    try:
        TopologicalSorter(found).prepare()
    except CycleError as problem:
        circle = problem.args[1]
    assert not "; ".join(found[importer][imported] for imported, importer in pairwise(circle))


@pytest.mark.parametrize(
    ("folder", "shared"),
    [
        ("gateway/api", {"common"}),
        (
            "workers/backends",
            {
                *("base", "engine_facts", "engine_request", "error_texts", "flag_table", "llama_server_api"),
                *("openai_server", "package_version", "program_backend", "recipe", "requests", "slot_files"),
                *("user_arguments", "visible_devices"),
            },
        ),
        ("gateway/cli/commands", set()),
    ],
)
def test_siblings_do_not_import_each_other(folder: str, shared: set[str]) -> None:
    """API families, recipes and commands are replaceable one by one; the code that they share is listed, and imports none of them."""
    package = folder.replace("/", ".")
    wrong = []
    for path in (ROOT / folder).rglob("*.py"):
        own = path.relative_to(ROOT / folder).parts[0].removesuffix(".py")
        if own in ("__init__", "registry"):
            continue  # the place where they are listed
        for module in imports(path):
            sibling = module.removeprefix(package + ".").split(".")[0] if within(module, package) else own
            if sibling not in {own, *shared}:
                wrong.append(f"{name(path)} imports {module}")
    assert not wrong


SCHEDULER_MODULES = (
    "scheduler",
    "view",
    "view_values",
    "inputs",
    "effects",
    "policy",
    "backoff",
    "model_states",
    "recovery",
)
"""What others may import from the scheduler: its events, queries and values, and the code that makes the events of a takeover."""


def test_the_state_of_the_scheduler_is_its_own() -> None:
    """Others send it events, and ask its view."""
    outside = [path for path in FILES if not name(path).startswith("supervisor/scheduler/")]
    modules = [f"supervisor.scheduler.{module}" for module in SCHEDULER_MODULES]
    wrong = [
        f"{name(path)} imports {module}"
        for path in outside
        for module in imports(path)
        if within(module, "supervisor.scheduler") and not any(within(module, one) for one in modules)
    ]
    wrong += [f"{name(path)} reads the state" for path in outside if re.search(r"scheduler\._", path.read_text())]
    assert not wrong


def test_no_test_needs_anothers_file() -> None:
    """Code that several tests need is in a file next to them that has no tests."""
    wrong = [
        f"{name(path)} imports {module}"
        for path in TESTS
        if TEST_IMPORT.search(path.read_text())  # else there is nothing to be parsed
        for module in imports(path)
        if within(module, "tests") and any(word.startswith("test_") for word in module.split("."))
    ]
    assert not wrong


def test_the_terminal_knows_nothing_of_the_server_but_the_declarations_of_its_routes() -> None:
    wrong = [
        f"{name(path)} imports {module}"
        for path in (ROOT / "gateway" / "cli").rglob("*.py")
        for module in imports(path)
        if within(module, "gateway")
        and module not in ("gateway", "gateway.cli", "gateway.overview.merge_patch", "gateway.overview.view")
        and not module.startswith(("gateway.cli.", "gateway.api."))
    ]
    assert not wrong
