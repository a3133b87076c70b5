"""Puts into the site what pages link to outside of docs (walkthroughs, pictures, SECURITY.md, ...), and adapts pages.

A page is written for the repository: its links are relative to its place there, and its lists are as GitHub reads them.
In the site a file of `docs` lies at the top and every other file under its path in the repository.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS, HOME = "docs/", "README.md"

_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_ITEM = re.compile(r"( *)(\d+\.|-) ")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for name in linked_files(DOCS + file.src_uri for file in files.documentation_pages()):
        files.append(File.generated(config, site_path(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    name = page.file.src_uri
    in_docs = page.file.generated_by is None
    return lists_for_mkdocs(links_for_site(markdown, DOCS + name if in_docs else name))


def linked_files(pages: Iterable[str]) -> list[str]:
    """Files outside of docs that these pages link to, and those that such a page links to in turn."""
    found: dict[str, None] = {}
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        for _, link in _LINK.findall((ROOT / page).read_text()):
            name = target(page, link)
            if (ROOT / name).is_file() and not name.startswith(DOCS) and name != HOME and name not in found:
                found[name] = None
                waiting += [name] * name.endswith(".md")
    return sorted(found)


def target(page: str, link: str) -> str:
    """The path in the repository that a link of this page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(name: str) -> str:
    return "index.md" if name == HOME else name.removeprefix(DOCS)


def links_for_site(markdown: str, page: str) -> str:
    """The page's text with its links as the site needs them. `page`: its path in the repository."""
    here = posixpath.dirname(site_path(page))

    def adapted(match: re.Match[str]) -> str:
        name = target(page, match[2])
        if not (ROOT / name).is_file():
            return match[0]  # no link, or one that the build refuses
        return match[1] + posixpath.relpath(site_path(name), here or ".")

    return _LINK.sub(adapted, markdown)


def lists_for_mkdocs(markdown: str) -> str:
    """The same lists as GitHub shows: a list is separated from the text and the list before it, and what belongs to a
    numbered item is indented by four."""
    lines: list[str] = []
    kind, is_code = "", False  # of the list that a line is in
    for line in markdown.splitlines():
        is_code ^= line.lstrip().startswith("```")
        item = None if is_code else _ITEM.match(line)
        if item is not None and not item[1]:
            if lines and lines[-1].strip() and kind != item[2][-1]:
                lines.append("")
            kind = item[2][-1]
        elif line.strip() and not line.startswith(" ") and (not lines or not lines[-1].strip() or line[0] in "#|`"):
            kind = ""
        deeper = " " if kind == "." and line.startswith("   ") else ""
        lines.append(deeper + line)
    return "\n".join(lines) + "\n"
