"""The pages of docs/clients: the blocks of each run to the letter against a real server.

`make test` runs the pages whose packages it has installed, and `make clients` all of them, with the versions that they name.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.clients.client_packages import CLIENTS, packages_of
from tests.clients.client_page import FOLDER, LANGUAGES, PAGES, ClientPage
from tests.clients.open_webui import use_open_webui
from tests.clients.page_runner import run_page
from tests.support.configuration_file import ConfiguredServer
from tests.support.models import llama_gguf, mmproj_and_lora_gguf, scripted_texts
from tests.support.models.llama_gguf import ScriptedModel
from tests.support.models.tiny_models import CHAT_TEXT, tiny_models
from tests.support.server import LemonbusServer

CHAT, EMBEDDING = "Qwen3.5-4B-GGUF", "nomic-embed-text-v1-GGUF"
"""The models of the pages."""
KEY: Final = "lemonbus"
ANSWER: Final = r"\s+".join(map(re.escape, CHAT_TEXT.split()))
EXPECTED: Final = {
    "Models": re.escape(CHAT),
    "Chat": ANSWER,
    "Stream": ANSWER,
    "Tools": r"get_weather.*Paris|sunny in Paris",
    "Pictures": ANSWER,
    "Structured answers": r"positive|negative",
    "Embeddings": r"^32$",
    "Responses": ANSWER,
    "Run": ANSWER,
    "Proxy": ANSWER,
    "Evaluate": ANSWER,
    "Count tokens": r"^\d+$",
}
"""Chapter → what its blocks must print: the answer of a model, and nothing that a client has of itself."""
REPLAYED: Final[dict[str, Callable[[LemonbusServer, str, str, str], None]]] = {"open-webui": use_open_webui}
"""Page of a client that is not run here → what sends the requests that the client sends."""
NO_PACKAGES: Final = {"curl"}
CONTEXT: Final = 131_072
PATIENCE_S: Final = 300.0 if CLIENTS else 90.0
"""An agent's own prompt has tens of thousands of tokens."""
LONGEST: Final = 110
"""Lines of a page."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredServer]:
    """A server with a key and the models of the pages: one that chats, sees and calls ``get_weather``, and one of embeddings."""
    folder = tmp_path_factory.mktemp("models")
    scripted = ScriptedModel(
        "clients",
        scripted_texts.CHAT_WORDS,
        template=scripted_texts.ONE_CALL_TEMPLATE,
        context=CONTEXT,
        layers=1,
        words=common_words(),
        more={scripted_texts.CALL_MARK: scripted_texts.TOOL_CALL_WORDS},
    )
    llama_gguf.write(folder / "chat.gguf", scripted)
    mmproj_and_lora_gguf.write_vision(folder / "mmproj.gguf")
    sections = f"""
[models."{CHAT}"]
path = "{folder}/chat.gguf"
mmproj = "{folder}/mmproj.gguf"
options = {{ ctx_size = {CONTEXT}, slots = 1 }}
[models."{EMBEDDING}"]
path = "{tiny_models()}/models/tiny-embed.gguf"
"""
    with ConfiguredServer("tiny-embed", sections=sections, api_key=KEY, gateway_workers=1) as server:
        yield server


def common_words() -> tuple[str, ...]:
    """Words of English, with a blank before them and without. With them, an agent's own prompt has a fourth of the tokens."""
    text = "".join(path.read_text() for path in [*FOLDER.glob("*.md"), *FOLDER.parent.glob("*.md")])
    words = [word for word, _ in Counter(re.findall(r"[A-Za-z]{3,}", text)).most_common(800)]
    return (*words, *(f" {word}" for word in words))


@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page(name: str, server: ConfiguredServer, tmp_path: Path) -> None:
    page = ClientPage(PAGES[name])
    if name in REPLAYED:
        REPLAYED[name](server, KEY, CHAT, EMBEDDING)
        return
    for program in ("curl",):
        if not shutil.which(program) and any(re.search(rf"\b{program} ", block.text) for block in page.blocks):
            pytest.skip(f"there is no {program}")
    with packages_of(page) as programs:
        printed = run_page(page, programs, server.port, tmp_path, PATIENCE_S)
    wrong = {chapter: text for chapter, text in printed.items() if not re.search(EXPECTED[chapter], text, re.MULTILINE)}
    assert wrong == {}


@pytest.mark.parametrize("name", PAGES)
def test_the_form_of_a_page(name: str) -> None:
    page = ClientPage(PAGES[name])
    assert {block.language for block in page.blocks} <= LANGUAGES
    assert len(page.text.splitlines()) <= LONGEST
    for block in page.blocks:
        assert not block.title or f"`{block.title}`" in page.text, "GitHub does not show titles"
    if name in REPLAYED:
        return
    assert page.sections, "nothing is run"
    assert page.sections.keys() <= EXPECTED.keys()
    if name not in NO_PACKAGES:
        installed = [each for packages in page.packages for each in packages.requirements]
        assert installed == list(page.tried), "what is installed is what was tried"


def test_every_page_is_in_the_overview() -> None:
    overview = (FOLDER / "index.md").read_text()
    assert sorted(re.findall(r"\]\(([\w-]+)\.md\)", overview)) == sorted(PAGES)
