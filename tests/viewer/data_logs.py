"""Logs of runs over a corpus and over tables, as an engine writes them.

Names are hostile, but for the logs that pictures are taken of.
"""

from collections.abc import Sequence
from typing import Any

from rlm.events import (
    CellEnded,
    CellStarted,
    DataRead,
    DataRequest,
    DocumentRead,
    Event,
    StepStarted,
    ToolCalled,
)
from tests.records.trajectories.samples import ended, replied, started

RUN_ID, CHILD_ID = "corpus-1", "corpus-1-child"
MARKUP = "<img src=x onerror=\"document.title='pwned'\">"
NAME = f"docs/{MARKUP}\u202etxt.exe"
ABOUT: dict[str, Any] = {
    "context_kind": "source",
    "context_description": f"a corpus of 5,000 documents: {MARKUP}",
}


def data_read(method: str, run_id: str = RUN_ID, source: str = "corpus", **facts: Any) -> DataRead:
    of: dict[str, Any] = (
        {"source_documents": 5_000, "source_bytes": 1_000_000} if source == "corpus" else {}
    )
    known: dict[str, Any] = {
        "step": 1,
        "cell": 1,
        "source_id": f"{source}-1",
        "count": 1,
        **of,
        **facts,
    }
    return DataRead(run_id=run_id, source=source, method=method, **known)


def read(number: int, name: str, *ranges: tuple[int, int]) -> DocumentRead:
    return DocumentRead(id=number, name=name, bytes=1_000, read=len(ranges), ranges=ranges)


def over(events: Sequence[Event], run_id: str = RUN_ID, **facts: Any) -> list[Event]:
    """A run of one step and one cell with these events."""
    about = {**ABOUT, **facts}
    below = {name: about[name] for name in ("parent_id", "depth") if name in about}
    return [
        started(run_id, **about),
        StepStarted(run_id=run_id, step=1, **below),
        replied(run_id, 1, "```repl\nctx.search('fox')\n```", **below),
        CellStarted(run_id=run_id, step=1, cell=1, code="ctx.search('fox')", **below),
        *events,
        CellEnded(run_id=run_id, step=1, cell=1, seconds=1, calls=0, **below),
        ended(run_id, step=1, **below),
    ]


def corpus_log() -> list[Event]:
    """A run that searches, greps and reads, and whose child reads some of the same document."""
    called: dict[str, Any] = {"run_id": RUN_ID, "step": 1, "name": "ctx.read", "arguments": {}}
    child = over(
        [data_read("read", CHILD_ID, count=1, returned=1, documents=(read(1, NAME, (50, 150)),))],
        CHILD_ID,
        parent_id=RUN_ID,
        depth=1,
    )
    return over(
        [
            ToolCalled(call_id="1", result="{}", **called),
            ToolCalled(call_id="2", result="{}", **called),
            *child,
            data_read(
                "grep",
                returned=3,
                requests=(DataRequest(text=MARKUP, returned=3),),
                documents=(DocumentRead(id=3, name="docs/c.txt", matched=3),),
            ),
            data_read(
                "read",
                count=2,
                returned=2,
                documents=(read(1, NAME, (0, 100)), read(2, "docs/b.txt", (0, 1_000))),
            ),
            data_read(
                "search",
                returned=2,
                requests=(DataRequest(text="fox", returned=2),),
                documents=(
                    DocumentRead(id=1, name=NAME, found=1),
                    DocumentRead(id=4, name="docs/d.txt", found=1),
                ),
            ),
        ]
    )


def tables_log() -> list[Event]:
    requests = (
        DataRequest(text="select * from orders where id = ?", count=40, returned=39),
        DataRequest(text=f"select {MARKUP}", failed=1),
    )
    told: dict[str, Any] = {"count": 41, "returned": 39, "failed": 1, "error": "no such column"}
    return over([data_read("sql", source="tables", requests=requests, **told)])


PAPERS = {
    "papers/2024/glacier-melt.md": ((0, 1_000),),
    "papers/2023/harbour-silt.md": ((0, 420), (700, 1_000)),
    "papers/2025/tide-gauges.md": ((100, 640),),
    "papers/2019/ferry-wakes.md": ((0, 150),),
    "papers/2021/sea-ice-age.md": (),
    "papers/2022/dune-grass.md": (),
}
SEARCHES = {"sea level rise harbour": 10, '"tide gauge" accuracy': 6, "dredging cost": 8}


def papers_log() -> list[Event]:
    """A run over a corpus, for a picture."""
    documents = tuple(
        DocumentRead(id=id_, name=name, bytes=1_000, found=1, read=len(ranges), ranges=ranges)
        for id_, (name, ranges) in enumerate(PAPERS.items(), 1)
    )
    searches = tuple(DataRequest(text=text, returned=n) for text, n in SEARCHES.items())
    found = tuple(
        DocumentRead(id=each.id, name=each.name, found=4 - each.id // 2) for each in documents
    )
    return over(
        [
            data_read("read", count=5, returned=5, documents=documents),
            data_read("search", count=3, returned=24, requests=searches, documents=found),
        ],
        query="What raises the sea level at the harbour, and how well is it measured?",
        context_description="a corpus of 5,000 documents",
    )


def orders_log() -> list[Event]:
    """A run over tables, for a picture."""
    statements = {
        "select status, count(*) from tickets group by status": 5,
        "select text from tickets where status = 'open' and opened < '2026-01-01'": 212,
        "select customer, sum(total) from orders group by customer order by 2 desc limit 20": 20,
    }
    requests = tuple(DataRequest(text=text, returned=n) for text, n in statements.items())
    failed = DataRequest(text="select txt from tickets", failed=1)
    told: dict[str, Any] = {"count": 4, "returned": 237, "failed": 1}
    read_rows = data_read(
        "sql", source="tables", requests=(*requests, failed), error="no such column: txt", **told
    )
    return over(
        [read_rows],
        query="Which customers wait longest for an answer?",
        context_description="2 tables: tickets (8,412 rows), orders (1,203)",
    )
