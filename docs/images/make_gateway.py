"""Record a client of the gateway: `python docs/images/make_gateway.py`, from a checkout.

A real client starts a real gateway over this repository, lists, searches, reads, and has a question
answered by a run whose model is played by a local server. Then it checks that the client received
no source text besides the spans it asked for.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY))

from docs.images.make_agent import Recording, drawn  # noqa: E402
from tests.endpoint import endpoint  # noqa: E402

COMMAND = "rlm mcp --root . --show-names   # started by its client"
QUERY = "Which file decides what a span may hold, and how much is that?"
CELL = """```repl
for name, text in context.items():
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("MAX_LINES = "):
            found = {"file": name, "start_line": number, "end_line": number, "quote": line}
most = found["quote"].split(" = ")[1]
FINAL({"answer": f"{found['file']}: {most} lines at most.", "citations": [found]})
```"""
MIN_CHARS = 32
"""A line of source as long as that does not turn up by chance."""


class Demo:
    """The client: what it shows, when, and everything that it received."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: Recording = []
        self.received: list[str] = []
        self.asked_for: list[str] = []

    def show(self, text: str = "") -> None:
        self.seen.append((time.monotonic(), f"{text}\n"))

    async def call(self, tool: str, said: str = "", **arguments: Any) -> dict[str, Any]:
        self.show(f"> {tool} {said}")
        result = await self.client.call_tool(tool, arguments)
        self.received.append(result.model_dump_json())
        if result.is_error or result.structured_content is None:
            sys.exit(f"{tool} was refused: {result.content}")
        found: dict[str, Any] = result.structured_content
        return found


async def use(demo: Demo) -> None:
    """List, search, read, ask."""
    session = (await demo.call("rlm_session_create"))["session"]
    given: dict[str, Any] = {"session": session, "path": "src/rlm/gateway"}
    listed = await demo.call("rlm_list", "path=src/rlm/gateway", **given)
    demo.show(f"  {len(listed['files'])} files, no content: {listed['files'][0]['name']} …")
    words = "bounded reading of a span"
    given = {"session": session, "query": words, "path": "src/rlm/gateway", "limit": 3}
    hits = (await demo.call("rlm_search", f"query={words!r}", **given))["hits"]
    for hit in hits:
        demo.asked_for.append(hit["text"])
        place = f"{hit['name'].rpartition('/')[2]}:{hit['line']}"
        demo.show(f"  {place:<18}{hit['text'].strip()[:52]}")
    await read(demo, session, hits[0])
    await complete(demo, session)
    left = (await demo.call("rlm_provenance", session=session))["left"]
    demo.show(f"  on record, sealed; left: {left['calls']:,} calls, {left['bytes']:,} bytes")


async def read(demo: Demo, session: str, hit: dict[str, Any]) -> None:
    start = max(1, hit["line"] - 1)
    given: dict[str, Any] = {"session": session, "handle": hit["handle"], "lines": 3}
    said = f"handle={hit['handle']} start_line={start} lines=3"
    span = await demo.call("rlm_read", said, start_line=start, **given)
    demo.asked_for.append(span["text"])
    for line in span["text"].splitlines():
        demo.show(f"  | {line[:70]}")


async def complete(demo: Demo, session: str) -> None:
    """Have a question answered by a run, over files that the client never sees."""
    given: dict[str, Any] = {"session": session, "query": QUERY, "path": "src/rlm/gateway"}
    run = await demo.call("rlm_complete", "path=src/rlm/gateway", **given)
    if run["status"] != "done":
        sys.exit(f"the run is not done: {run}")
    demo.show(f"  ? {QUERY}")
    demo.show(f"  = {run['answer']}")
    demo.asked_for.append(run["answer"])
    for each in run["citations"]:
        demo.asked_for.append(each.get("quote", each.get("text", "")))
        demo.show(f"  cited, verbatim: {demo.asked_for[-1]} (line {each['start_line']})")


def check(demo: Demo) -> int:
    """Check that the client received no other lines; return the number of lines checked."""
    asked = sorted({json.dumps(each)[1:-1] for each in demo.asked_for if each}, key=len)
    text = "\n".join(demo.received)
    for each in reversed(asked):
        text = text.replace(each, "").replace(json.dumps(each)[1:-1], "")
    names = ("git", "ls-files", "-z", "src", "tests", "docs", "benchmarks", "tools")
    files = subprocess.run(names, cwd=REPOSITORY, capture_output=True, check=True).stdout  # noqa: S603
    looked_for = 0
    for name in filter(None, files.decode().split("\0")):
        path = REPOSITORY / name
        if path.suffix not in (".py", ".md", ".ts") or not path.is_file():
            continue
        for line in map(str.strip, path.read_text("utf-8", "replace").splitlines()):
            looked_for += len(line) >= MIN_CHARS
            if len(line) >= MIN_CHARS and json.dumps(line)[1:-1] in text:
                sys.exit(f"source text outside the spans that were asked for: {name}: {line}")
    return looked_for


async def record(folder: Path) -> Recording:
    def model(_: dict[str, Any]) -> str:
        return CELL

    with endpoint(model) as server:
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        variables = {**keep, "OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": server.url}
        record = ("--provenance", str(folder / "record.jsonl"), "-m", "openai/gpt-5")
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "rlm", "mcp", "--root", str(REPOSITORY), "--show-names", *record],
            env=variables,
        )
        async with Client(stdio_client(started)) as client:
            demo = Demo(client)
            await use(demo)
    lines = check(demo)
    demo.show(f"  {lines:,} lines of source checked: none was sent besides these spans")
    return demo.seen


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        seen = asyncio.run(record(Path(folder)))
    for moment, text in seen:
        print(f"{moment - seen[0][0]:6.2f} s  {text}", end="")
    title = "A client lists, searches, reads and asks over this repository"
    (HERE / "gateway.svg").write_text(drawn(seen, COMMAND, title), "utf-8")


if __name__ == "__main__":
    main()
