"""Checks the built site: `python docs/check_site.py site`.

Every link within it must lead somewhere, and no include may be left as text.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects what a tag links to, and its own name."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def broken(site: Path) -> list[str]:
    """A line for each link that leads nowhere."""
    pages = {page: Links(page.read_text()) for page in sorted(site.resolve().rglob("*.html"))}
    lines = []
    for page, found in pages.items():
        here = page.relative_to(site.resolve())
        if "8<--" in page.read_text() or "8 &lt; --" in page.read_text():
            lines.append(f"{here}: an include that was not carried out")
        for link in sorted(found.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or here.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                lines.append(f"{here}: {link} does not exist")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                lines.append(f"{here}: {link} has no such place")
    return lines


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = broken(folder)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    count = len(list(folder.rglob("*.html")))
    sys.stdout.write(f"{count} pages, {len(found)} broken links\n")
    sys.exit(bool(found) or not count)
