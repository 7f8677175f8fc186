"""The attacks of `attacks.toml`, made on one source; every engine has a test that calls this."""

import json
import tomllib
from pathlib import Path
from typing import Any

from rlm.data import DataRefused, DataSource

SECRET = "the-secret-that-was-not-given"
ATTACKS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "attacks.toml").read_text("utf-8")
)["attack"]
DEEP: list[dict[str, Any]] = [
    {"name": name, "sql": sql, "bounded": True}
    for name, sql in (
        ("deep brackets", f"select {'(' * 20_000}1{')' * 20_000}"),
        ("deep negation", f"select {'not ' * 30_000}true"),
        ("deep subqueries", f"{'select * from (' * 3_000}select 1{') x' * 3_000}"),
        ("a long union", " union all ".join(["select 1"] * 8_000)),
        ("many columns", f"select {','.join(['1'] * 50_000)}"),
        ("a NUL", "select '\0'"),
        ("half a character", "select '\ud800'"),
    )
]
ALL = [*ATTACKS, *DEEP]


async def attack(source: DataSource, each: dict[str, Any], folder: Path) -> str:
    """Make one attack; return how it ended. Fails if it did harm."""
    secret, out = folder / "secret.txt", folder / "out"
    secret.write_text(f"{SECRET}\n", "utf-8")
    out.mkdir(exist_ok=True)
    values = {"secret": secret, "folder": out, "table": folder / "t.csv"}
    sql = each["sql"]
    for name, path in values.items():
        sql = sql.replace(f"{{{name}}}", str(path))
    try:
        answer = await source.answer("sql", {"query": sql, "parameters": []})
    except DataRefused as refused:
        ended = f"refused: {refused}"
    else:
        assert each.get("bounded"), f"{each['name']!r} was answered: {answer[:200]}"
        assert len(answer) < 8 << 20
        assert len(json.loads(answer)["rows"]) <= 10_000
        ended = "bounded"
    assert SECRET not in ended
    assert "\n" not in ended, "an error has one line"
    assert len(ended) < 1_000
    assert not list(out.iterdir()), "nothing was written"
    rows = json.loads(await source.answer("sql", {"query": "select count(*), min(text) from t"}))
    assert rows["rows"] == [[3, "a"]], "the session goes on, and nothing was changed"
    return ended
