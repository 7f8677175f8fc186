"""Build the documentation site (`make site`) from docs/ and the files its pages link to.

The pages are written for a forge, where a link may lead to any file of the repository. A site has
only what is in its folder, so the pages are copied to build/site/pages, with every file they link
to: Markdown as a page, other text as a page of source code. Links are rewritten to match. The
navigation is the list in docs/README.md, and the pages about the API come from the code.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {".png", ".svg", ".jpg", ".gif", ".webp"}
LARGEST_SOURCE_BYTES = 400_000

API = {
    "Runs": ("rlm.api", "rlm.results", "rlm.limits", "rlm.config"),
    "Operators": ("rlm.operators",),
    "Citations": ("rlm.citations",),
    "Contexts": ("rlm.context",),
    "Chats": ("rlm.chat",),
    "Agents": ("rlm.agent",),
    "Batches": ("rlm.batch",),
    "Tools": ("rlm.tools",),
    "Clients": ("rlm.clients",),
    "Messages": ("rlm.messages",),
    "Protocols": ("rlm.protocols",),
    "Environments": ("rlm.environments",),
    "Events": ("rlm.events",),
    "Records": ("rlm.records",),
    "Evaluation": ("rlm.bench",),
    "Testing": ("rlm.testing",),
    "Errors": ("rlm.errors",),
}
"""The title of a page about the API, and the modules whose public names it shows."""

LINK = re.compile(
    r"(?P<before>!?\[(?:[^\[\]\n]|\n(?!\s*\n)|\[[^\]\n]*\])*\]\()(?P<target>[^)\s]+)(?P<after>[^)]*\))"
)
"""A link, whose words may go on in the next line."""
FENCE = re.compile(r"^ *(`{3,}|~{3,})[^`]*$")
ENTRY = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^)#]+)\)")


def place_of(path: PurePosixPath, *, is_folder: bool = False) -> PurePosixPath:
    """Return the place of a file of the repository among the pages."""
    if path.suffix == ".ipynb":
        path = path.with_suffix(".md")
    if path.suffix == ".md" or path.suffix in PICTURES:
        is_page = path.parts[0] == "docs"
        return PurePosixPath(*path.parts[1:]) if is_page else PurePosixPath("project") / path
    if is_folder:
        return PurePosixPath("source") / path / "index.md"
    return PurePosixPath("source") / path.with_name(f"{path.name}.md")


def parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in parts, each with whether it is fenced code."""
    part, fence = "", ""
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        opening = FENCE.match(line)
        if not fence and opening:
            yield part, False
            part, fence = line, opening[1]
            continue
        part += line
        if fence and len(bare) >= len(fence) and set(bare) == {fence[0]}:
            yield part, True
            part = fence = ""
    yield part, bool(fence)


class Site:
    """The pages of the site, by their place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pages: dict[PurePosixPath, str] = {}
        self.pictures: dict[PurePosixPath, Path] = {}

    def add(self, path: Path) -> PurePosixPath:
        """Add a file and everything it links to; return its place."""
        name = PurePosixPath(path.relative_to(self.root).as_posix())
        place = place_of(name, is_folder=path.is_dir())
        if place in self.pages or place in self.pictures:
            return place
        if path.suffix in PICTURES:
            self.pictures[place] = path
        elif path.is_dir():
            self.pages[place] = ""  # A page that links back to this one ends the recursion.
            self.pages[place] = self._listing(path, name, place)
        elif path.suffix in {".md", ".ipynb"}:
            self.pages[place] = ""
            text = path.read_text("utf-8")
            text = notebook_page(text) if path.suffix == ".ipynb" else text
            self.pages[place] = self.with_links(text, path, place)
        else:
            self.pages[place] = source_page(path, name)
        return place

    def with_links(self, text: str, path: Path, place: PurePosixPath) -> str:
        """Return a page with its links to files rewritten to links between pages."""

        def rewritten(match: re.Match[str]) -> str:
            target, _, anchor = match["target"].partition("#")
            if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
                return match[0]
            found = (path.parent / target).resolve()
            if not found.exists() or not found.is_relative_to(self.root):
                return match[0]  # The strict build reports it, with its line.
            link = relpath(self.add(found), place.parent)
            is_page = found.suffix in {".md", ".ipynb"}
            new = f"{link}#{anchor}" if anchor and is_page else link
            return f"{match['before']}{new}{match['after']}"

        return "".join(
            part if is_code else LINK.sub(rewritten, part) for part, is_code in parts(text)
        )

    def _listing(self, path: Path, name: PurePosixPath, place: PurePosixPath) -> str:
        rows = [f"# {name}", ""]
        rows += [
            f"- [{entry.name}]({relpath(self.add(entry), place.parent)})"
            for entry in sorted(path.iterdir())
            if entry.is_file() and entry.suffix in {".py", ".md", ".toml"}
        ]
        return "\n".join(rows) + "\n"


def source_page(path: Path, name: PurePosixPath) -> str:
    """Return a page that shows a file of source code."""
    text = path.read_bytes()[:LARGEST_SOURCE_BYTES].decode("utf-8", "replace")
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`{3,}", text)), default=0))
    language = {".py": "python", ".toml": "toml", ".json": "json", ".ts": "ts"}.get(
        path.suffix, "text"
    )
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n"
    return f'{head}{fence}{language} linenums="1"\n{text.rstrip()}\n{fence}\n'


PREFORMATTED = re.compile(r"<pre\b.*?</pre>", re.DOTALL)


def _kept(found: re.Match[str]) -> str:
    """Return code with its lines and spaces as entities: a page has such HTML on one line."""
    return found[0].replace("\n", "&#10;").replace("  ", "&#32;&#32;")


def notebook_page(text: str) -> str:
    """Return a notebook as Markdown, with what its cells showed."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        streamed = "".join("".join(each.get("text", "")) for each in cell["outputs"])
        if streamed:
            parts.append(f"```text\n{streamed.rstrip()}\n```")
        for output in cell["outputs"]:
            if "text/html" in output.get("data", {}):
                html = " ".join(
                    PREFORMATTED.sub(_kept, "".join(output["data"]["text/html"])).split()
                )
                parts.append(f'<div class="notebook-output">{html}</div>')
    return "\n\n".join(parts) + "\n"


def api_pages() -> dict[PurePosixPath, str]:
    """Return the pages about the API; the site generator fills them from the docstrings."""
    return {
        PurePosixPath("api") / f"{title.lower()}.md": "\n\n".join(
            [f"# {title}", *(f"::: {module}" for module in modules), ""]
        )
        for title, modules in API.items()
    }


def navigation(text: str) -> list[dict[str, Any]]:
    """Return the navigation: a tab for every heading of the list, with its groups."""
    tabs: list[dict[str, Any]] = [{"Home": "README.md"}]
    entries: list[Any] = []
    for line in text.splitlines():
        if line.startswith("## "):
            entries = []
            tabs.append({line[3:].strip(): entries})
        elif line.startswith("### "):
            group: list[Any] = []
            entries = next(iter(tabs[-1].values()))
            entries.append({line[4:].strip(): group})
            entries = group
        elif entry := ENTRY.match(line):
            entries.append({entry["title"].replace("`", ""): entry["target"]})
    return [tab for tab in tabs if all(tab.values())]


def unlisted(site: Site, nav: list[dict[str, Any]]) -> list[str]:
    """Return the pages of docs/ that the navigation does not list."""
    listed = set(re.findall(r'"([^"]+\.md)"', json.dumps(nav)))
    known = {str(place) for place in site.pages if place.parts[0] not in {"project", "source"}}
    free = {"decisions/template.md"} | {
        place for place in known if re.match(r"decisions/\d", place)
    }
    return sorted(known - listed - free)


def write_pages(root: Path, folder: Path) -> list[str]:
    """Write all pages and the configuration into `folder`; return what is wrong with them."""
    site = Site(root)
    for path in sorted((root / "docs").rglob("*")):
        if path.suffix in {".md", ".ipynb"} or path.suffix in PICTURES:
            site.add(path)
    shutil.rmtree(folder, ignore_errors=True)
    nav = navigation(site.pages[PurePosixPath("README.md")])
    problems = [f"docs/README.md does not list {page}" for page in unlisted(site, nav)]
    api = api_pages()
    nav.insert(-1, {"API": [{title: f"api/{title.lower()}.md"} for title in API]})
    for place, text in (site.pages | api).items():
        target = folder / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    for place, path in site.pictures.items():
        target = folder / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(root / "docs" / "site.css", folder / "pages" / "site.css")
    settings = (root / "docs" / "site.toml").read_text("utf-8")
    tomllib.loads(settings)
    source = json.dumps(str(root / "src"))
    (folder / "zensical.toml").write_text(
        f"{settings}\n[project.plugins.mkdocstrings.handlers.python]\npaths = [{source}]\n".replace(
            'nav = "from docs/README.md"', f"nav = {_toml(nav)}"
        ),
        "utf-8",
    )
    return problems


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


FIND_ROOT = """<script>
(function () {
  // The page of any missing address: find the folder of the site among those above it.
  var parts = location.pathname.split("/").slice(0, -1);
  (function look(count) {
    if (count < 1) return;
    var root = parts.slice(0, count).join("/") + "/";
    fetch(root + "404.html", {method: "HEAD"}).then(function (reply) {
      if (!reply.ok) return look(count - 1);
      document.querySelectorAll("[data-root]").forEach(function (link) {
        link.setAttribute("href", root + link.getAttribute("data-root"));
      });
    });
  })(parts.length);
})();
</script>"""
NOT_FOUND = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Page not found - rlm</title>
<style>
body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 1rem }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #14161a; color: #dde }}
  a {{ color: #8bf }}
}}
</style>
<h1>Page not found</h1>
<p>There is no page at this address. Go to <a href="./" data-root="">the documentation</a>, where
you can search it.</p>
{FIND_ROOT}
</html>
"""
"""The page for missing addresses. A server sends it for an address at any depth, so it can't link
to anything by a relative path, and the site may be below any prefix."""


def main() -> int:
    folder = ROOT / "build" / "site"
    problems = write_pages(ROOT, folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    build = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True)  # noqa: S603
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        return 1
    (folder / "html" / "404.html").write_text(NOT_FOUND, "utf-8")
    print("build/site/html: python -m http.server --directory build/site/html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
