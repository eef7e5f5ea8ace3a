"""A hook of MkDocs: files outside of `docs/` that a page links to become text files of the site.

On GitHub such a link leads to the file itself, so the pages are written that way. The page of
changes is `CHANGELOG.md` itself.
"""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)(?=\))")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page, with links into the site in place of those out of it."""
    folder = dirname(page.file.src_uri)
    if page.file.src_uri == "changelog.md":
        changes = (ROOT / "CHANGELOG.md").read_text()
        markdown = re.sub(r"\]\((?!https?:)(?:docs/)?", "](", changes)

    def inside(match: re.Match[str]) -> str:
        path = normpath(f"docs/{folder}/{match[1]}")
        if path.startswith("docs/") and not path.endswith(".py"):
            return match[1]
        if not (ROOT / path).is_file():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which does not exist")
        copy = f"source/{path}.txt"
        if copy not in files.src_uris:
            files.append(File.generated(config, copy, content=(ROOT / path).read_text()))
        return relpath(copy, folder or ".")

    return LINK.sub(inside, markdown)
