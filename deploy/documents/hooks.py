"""What MkDocs calls while it builds the site, by the name of the event."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deploy.documents import built_pages, sources

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that they have in the repository."""
    config.mdx_configs["toc"]["slugify"] = sources.slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside docs/, and the files that pages link to."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only `make docs` has it

    for path, page in sources.DOCUMENTS.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=(ROOT / path).read_text("utf-8")))
    for path in sorted(sources.shown_files(ROOT)):
        files.append(File.generated(config, sources.page_of(path), content=sources.shown(path, ROOT)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - by name
    """Let the links of a page lead to pages of the site. The search leaves former changes out."""
    path = page.file.src_uri
    if path == "changelog.md":
        page.meta["search"] = {"exclude": True}
    return markdown if path.startswith("files/") else sources.rewritten(markdown, sources.source_of(path), ROOT)


def on_post_build(config: MkDocsConfig) -> None:
    """Check what was built."""
    from mkdocs.exceptions import Abort  # noqa: PLC0415 - likewise

    found = built_pages.problems(Path(config.site_dir))
    if found:
        raise Abort("\n".join(found))
