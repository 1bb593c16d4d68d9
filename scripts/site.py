"""Builds the site of the documents into build/site, and checks its links: `make docs`.

The documents lie where readers of the repository look for them: some in the top folder, others in
docs/. Here they are copied into one folder, with the links between them changed to fit, built by
Zensical, and every link and picture of what came out is looked for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parent.parent
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
TOP = ("ARCHITECTURE.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md")


def copied() -> None:
    """The documents in one folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    for name in TOP:
        shutil.copy(ROOT / name, PAGES / name)
    for path in PAGES.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        path.write_text(fitted(text, path.relative_to(PAGES)), encoding="utf-8")


def fitted(text: str, path: Path) -> str:
    """A document whose links are as they must be in the one folder.

    Links to files that are no documents lead nowhere on the site: only their text stays.

    >>> fitted("[a](../ARCHITECTURE.md#x) [b](docs/sql.md) [c](../examples/a.md)", Path("x.md"))
    '[a](ARCHITECTURE.md#x) [b](sql.md) c'
    """

    def link(found: re.Match[str]) -> str:
        image, label, target = found[1], found[2], found[3]
        if "://" in target or target.startswith(("#", "mailto:")):
            return found[0]
        up = "../" * len(path.parent.parts)
        plain = target.removeprefix("docs/")
        for name in TOP:
            if plain.removeprefix(up).removeprefix("../").partition("#")[0] == name:
                plain = up + plain.rpartition("../")[2]
        if (path.parent / urldefrag(plain)[0]).as_posix().startswith("../") or "examples/" in plain:
            return label
        return f"{image}[{label}]({plain})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, text)


class _Links(HTMLParser):
    """Collects what a page leads to, and the places in it that others may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {found[key] or "" for key in ("id", "name") if key in found}
        key = {"a": "href", "img": "src", "link": "href", "script": "src"}.get(tag)
        if key and found.get(key):
            self.links.append(found[key] or "")


def broken() -> Iterator[str]:
    """Links of the site that lead nowhere."""
    read: dict[Path, _Links] = {}

    def page(path: Path) -> _Links:
        if path not in read:
            read[path] = _Links()
            read[path].feed(path.read_text(encoding="utf-8"))
        return read[path]

    def there(path: Path, place: str) -> bool:
        return path.suffix != ".html" or place in page(path).places

    for path in sorted(SITE.rglob("*.html")):
        if path.name == "404.html":
            continue
        for link in page(path).links:
            address, place = urldefrag(link)
            if "://" in address or address.startswith(("mailto:", "data:", "//")):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(SITE)}: {link}"
            elif place and not place.startswith("__") and not there(target, unquote(place)):
                yield f"{path.relative_to(SITE)}: {link} (no such place)"


def main() -> int:
    copied()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [Path(sys.executable).parent / "zensical", "build", "--clean"]
    done = subprocess.run(command, cwd=ROOT)
    if done.returncode:
        return done.returncode
    found = list(broken())
    for line in found:
        sys.stderr.write(f"broken link: {line}\n")
    pages = len(list(SITE.rglob("*.html")))
    sys.stdout.write(f"{pages} pages in build/site, {len(found)} broken links\n")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
