"""Attacks over HTTP: fields as long as a line may be, and orders from elsewhere to every route."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm.viewer.index import ID_CHARS
from tests.viewer.serving import Client, log_shelf, serving

LONG = "M" * 300_000
USED = {"input_tokens": 1, "output_tokens": 1, "requests": 1}


def event(name: str, **fields: Any) -> str:
    about = {"type": name, "run_id": "r", "depth": 0, "step": 1, "wall_time": 1.0}
    return json.dumps({**about, **fields})


def started(**fields: Any) -> str:
    texts = ("query", "model", "sub_model", "strategy", "environment", "context_kind")
    given = {**dict.fromkeys(texts, LONG), "context_description": LONG, "parent_call_id": LONG}
    group = {"group": {"kind": "chat", "name": LONG}}
    return event(
        "run_started",
        **{**given, "step": 0, "context_bytes": 1, "context_sha256": "0", "settings": group},
        **fields,
    )


def long_log(path: Path) -> Path:
    """Every text of every event is long, and so is the id of a second run."""
    call = {"kind": "llm", "model": LONG}
    ending = {"stop_reason": LONG, "answer_source": LONG, "answer": LONG, "limit": LONG}
    lines = [
        started(),
        event("step_started"),
        event(
            "model_asked",
            purpose=LONG,
            model=LONG,
            message_count=1,
            new_messages=[{"role": "user", "content": LONG}],
        ),
        event("model_replied", purpose=LONG, model=LONG, text=LONG, usage=USED),
        event("cell_started", cell=1, code=LONG),
        *(
            event("call_started", call_id=f"{number}{LONG}", prompt=LONG, **call)
            for number in range(9)
        ),
        *(
            event(
                "call_ended",
                call_id=f"{number}{LONG}",
                reply=LONG,
                seconds=1.0,
                child_run_id=LONG,
                error=LONG,
                **call,
            )
            for number in range(9)
        ),
        event("cell_ended", cell=1, seconds=1.0, calls=1, error_type=LONG, error_message=LONG),
        event("run_ended", steps=1, seconds=1.0, error=LONG, usage=USED, **ending),
        started(run_id=LONG),
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.mark.parametrize(
    ("place", "most"),
    [
        ("runs", 10_000),
        ("runs/r", 700_000),
        ("runs/r/timeline", 100_000),
        ("runs/r/calls", 100_000),
        ("runs/r/usage", 10_000),
        ("runs/r/coverage", 10_000),
        ("runs/r/search?q=MMM", 100_000),
    ],
)
async def test_long_fields_do_not_make_long_responses(
    tmp_path: Path, place: str, most: int
) -> None:
    path = long_log(tmp_path / "long.jsonl")
    assert path.stat().st_size > 10_000_000
    async with serving(log_shelf(path), tmp_path) as client:
        answer = await client.ask(f"/api/{place}")
        assert answer.status == 200
        assert len(answer.text) < most


@pytest.mark.parametrize(
    "settings",
    [
        {"K" * 300_000: ["t" * 20_001] * 300},  # Each cut text was named with the whole key.
        {f"{number}{LONG}": number for number in range(80)},
        {"deep": [[["x" * 300] * 100] * 100] * 10},
    ],
    ids=["cut texts below a long key", "many long keys", "many short texts"],
)
async def test_settings_of_any_shape_do_not_make_long_responses(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    path = tmp_path / "a.jsonl"
    about = json.loads(started()) | {"settings": settings, "query": "q"}
    path.write_text(json.dumps(about) + "\n", "utf-8")
    async with serving(log_shelf(path), tmp_path) as client:
        answer = await client.ask("/api/runs/r")
        assert answer.status == 200
        assert len(answer.text) < 20_000_000


async def test_a_run_whose_id_does_not_fit_an_address_is_skipped_and_counted(
    tmp_path: Path,
) -> None:
    path = long_log(tmp_path / "long.jsonl")
    with path.open("a", encoding="utf-8") as file:
        file.write(started(run_id="i" * ID_CHARS) + "\n")
    async with serving(log_shelf(path), tmp_path) as client:
        while "reading" in (found := await client.get("/api/runs")):
            pass  # The server answers with what it has, after a moment.
        assert sorted(row["run_id"][:5] for row in found["runs"]) == ["iiiii", "r"]
        assert found["skipped"]["count"] == 1
        assert "id too long" in found["skipped"]["reasons"][0]


def writing(client: Client) -> list[tuple[str, str]]:
    """The method and the path of every route that is not only read."""
    names = {"run_id": "r", "opened_id": "x"}
    return [
        (method, route.path.format(**names))
        for route in client.server._app.routes
        for method in sorted((route.methods or set()) - {"GET", "HEAD"})
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": None},
        {"X-RLM-Token": None},
        {"X-RLM-Token": "guessed"},
        {"Authorization": None},
        {"Host": "evil.example:{port}", "Origin": "http://evil.example:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_every_route_that_changes_something_refuses_other_websites(
    tmp_path: Path, changed: dict[str, str | None]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(started() + "\n", "utf-8")
    async with serving(log_shelf(path), tmp_path) as client:
        token = client.server.access.token.value
        own = {"Origin": client.base, "X-RLM-Token": token, "Authorization": f"Bearer {token}"}
        client.session.headers.clear()
        said = {
            name: value.format(port=client.server.port)
            for name, value in {**own, **changed}.items()
            if value is not None
        }
        routes = writing(client)
        assert len(routes) >= 6
        for method, place in routes:
            refused = await client.ask(place, method, data=b"{}", headers=said)
            assert refused.status == 403, (method, place, refused.text)
        method, place = routes[0]
        allowed = await client.ask(place, method, data=b"{}", headers=own)
        assert allowed.status != 403
