"""Builds the site of the documents into build/site, and checks its links: `make docs`.

The documents lie where readers of the repository look for them: some in the top folder, others in
docs/. Here they are copied into one folder, with the links between them changed to fit, built by
Zensical, and every link and picture of what came out is looked for. Mermaid, which draws the
pictures in the reader's browser, is taken from npm once, and is part of the site.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parent.parent
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
MERMAID = "12.3.0"
"""The version of Mermaid that Zensical's own script asks for, pinned with its checksum."""
CHECKSUM = (
    "sha512-4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmi"
    "NAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw=="
)
HELD = ROOT / "build" / "mermaid" / MERMAID
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


def mermaid() -> Path | None:
    """The folder of Mermaid's one file and its licence; None: npm does not give it."""
    if (HELD / "mermaid.min.js").exists():
        return HELD
    npm = shutil.which("npm")
    if npm is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        words = [npm, "pack", f"mermaid@{MERMAID}", "--json", "--pack-destination", folder]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            return None
        packed = (Path(folder) / json.loads(done.stdout)[0]["filename"]).read_bytes()
    found = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    if found != CHECKSUM:
        raise SystemExit(f"mermaid {MERMAID} is not what it was: {found}")
    HELD.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for name in ("dist/mermaid.min.js", "LICENSE"):
            member = archive.extractfile(f"package/{name}")
            assert member is not None, name
            (HELD / Path(name).name).write_bytes(member.read())
    return HELD


_FETCHED = re.compile(
    r"""<(?:script|img)\b[^>]*\ssrc=["']?(?:https?:)?//[^"'> ]+"""
    r"""|<link\b[^>]*\brel=["']?stylesheet\b[^>]*\shref=["']?(?:https?:)?//[^"'> ]+"""
)


def foreign() -> Iterator[str]:
    """What pages would have fetched from elsewhere."""
    for path in sorted(SITE.rglob("*.html")):
        for found in _FETCHED.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(SITE)}: {found}"


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
    drawing = mermaid()
    if drawing is None:
        sys.stderr.write("npm cannot give Mermaid: readers' browsers will ask unpkg.com for it\n")
    else:
        (PAGES / "assets").mkdir()
        shutil.copy(drawing / "mermaid.min.js", PAGES / "assets" / "mermaid.min.js")
        shutil.copy(drawing / "LICENSE", PAGES / "assets" / "mermaid.LICENSE.txt")
    command = [Path(sys.executable).parent / "zensical", "build", "--clean"]
    done = subprocess.run(command, cwd=ROOT)
    if done.returncode:
        return done.returncode
    found = [*broken(), *foreign()]
    for line in found:
        sys.stderr.write(f"broken link: {line}\n")
    pages = len(list(SITE.rglob("*.html")))
    sys.stdout.write(f"{pages} pages in build/site, {len(found)} broken links\n")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
