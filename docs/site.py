"""Makes the repository a site: README, its neighbours and the studies are pages, and links out of docs/ work.

Every page is written for a plain viewer of the repository, where README.md says `docs/training.md` and a page
in docs/ says `../studies/micro/runs.csv`. On the site the pages of docs/ are at the top, next to studies/. So
links are site_link to where their targets are there, and files outside of docs/ that some page links to are
taken along.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    **{str(path.relative_to(ROOT)): str(path.relative_to(ROOT)) for path in ROOT.glob("studies/**/*.md")},
}
SOURCES = {page: name for name, page in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    for target in sorted(set(_linked(files))):
        if files.get_file_from_path(target) is None and (ROOT / target).is_file():
            files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = PurePosixPath(page.file.src_uri).parent

    def site_link(link: re.Match[str]) -> str:
        return os.path.relpath(_on_site(_in_repository(page.file.src_uri, link[0])), here)

    return LINK.sub(site_link, markdown)


def _linked(files: Files) -> Iterator[str]:
    for file in files.documentation_pages():
        for link in LINK.findall(file.content_string):
            yield _on_site(_in_repository(file.src_uri, link))


def _in_repository(page: str, link: str) -> str:
    """Where a link of a page leads, as a path from the root of the repository."""
    source = SOURCES.get(page, f"docs/{page}")
    return os.path.normpath(os.path.join(os.path.dirname(source), link))


def _on_site(path: str) -> str:
    return PAGES.get(path, path.removeprefix("docs/"))
