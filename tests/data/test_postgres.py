"""A real PostgreSQL server, read-only: values, limits, schemas, secrets, and the attacks."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.context import store_context
from rlm.data import Database, DataRefused, DataSource, QueryLimits, database, open_data
from rlm.data.opening import reopen_data
from rlm.data.postgres import PostgresSource
from rlm.errors import ConfigError
from tests.data.attacking import ALL, SECRET, attack
from tests.data.server import PASSWORD, PROGRAMS, postgres

pytest.importorskip("psycopg", reason="psycopg is an extra: pip install 'recursivelm[postgres]'")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not PROGRAMS, reason="PostgreSQL is not installed: apt install postgresql"),
]

LIMITS = QueryLimits(seconds=2.0)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, str]]:
    with postgres() as urls:
        yield urls


@pytest.fixture(scope="module")
def source(server: tuple[str, str]) -> Iterator[PostgresSource]:
    one = PostgresSource(database(server[0]), LIMITS)
    yield one
    one.close()


async def asked(source: DataSource, query: str, *parameters: Any) -> Any:
    return json.loads(await source.answer("sql", {"query": query, "parameters": list(parameters)}))


async def test_tables_are_described_and_queried(source: PostgresSource) -> None:
    assert [each["name"] for each in source.manifest["tables"]] == ["kinds", "t"]
    assert "`t`: about 3 rows, 2 columns" in source.description
    assert "hidden" not in source.description
    found = await asked(source, "select text from t where id > $1 order by id", 1)
    assert (found["columns"], found["rows"]) == (["text"], [["b"], ["c"]])
    kinds = (await asked(source, "select * from kinds"))["rows"][0]
    assert kinds == [1.1, "2025-01-02T03:04:05+00:00", "\\x00ff", {"a": 1}, [1, 2], "NaN", 1]
    assert (await asked(source, "select 1 as a, 2 as a;"))["rows"] == [[1, 2]]
    assert (await asked(source, "values (1), (2)"))["rows"] == [[1], [2]]
    wide = ", ".join(f"{n} as c{n}" for n in range(500))
    assert len((await asked(source, f"select {wide}"))["rows"][0]) == 500
    rows = json.loads(await source.answer("rows", {"table": "t", "start": 1, "count": 1}))
    assert rows["rows"] == [[2, "b"]]
    assert "text='a'" in source.preview(2_000)


async def test_large_results_are_cut(source: PostgresSource) -> None:
    found = await asked(source, "select g from generate_series(1, 200000) g")
    assert (len(found["rows"]), found["is_cut"]) == (10_000, True)
    found = await asked(source, "select repeat('x', 1000000) from generate_series(1, 1000)")
    assert (len(found["rows"]), found["is_cut"]) == (4, True)
    assert (await asked(source, "select count(*) from t"))["rows"] == [[3]]


async def test_a_cancelled_query_is_cancelled_on_the_server(
    server: tuple[str, str],
) -> None:
    slow = PostgresSource(database(server[0]), QueryLimits(seconds=600.0))
    endless = (
        "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r"
    )
    task = asyncio.create_task(asked(slow, endless))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await asked(slow, "select 1 as n"))["rows"] == [[1]]
    slow.close()


@pytest.mark.parametrize(
    "query",
    [
        "select * from hidden.secret",
        'select * from "hidden" . secret',
        "select * from hidden/* */.secret",
        "select * from hidden--\n.secret",
        'select * from U&"\\0068idden".secret',
        "select * from /* /* */ */ hidden.secret",
        "select x from t, lateral (select * from hidden.secret) s",
        "select table_name from information_schema.tables",
        "select rolname from pg_catalog.pg_roles",
        "select usename from pg_stat_activity",
        "select pg_sleep/**/(3600)",
        'select "pg_sleep"(3600)',
        "select PG_SLEEP(3600)",
    ],
)
async def test_only_listed_schemas_can_be_read(source: PostgresSource, query: str) -> None:
    with pytest.raises(DataRefused) as caught:
        await asked(source, query)
    assert SECRET not in str(caught.value)


async def test_text_literals_are_not_mistaken_for_names(source: PostgresSource) -> None:
    for text in ("'pg_sleep hidden.x'", "$$pg_sleep hidden.x$$", "$a$pg_sleep hidden.x$a$"):
        assert (await asked(source, f"select {text} -- pg_sleep"))["rows"] == [
            ["pg_sleep hidden.x"]
        ]
    assert (await asked(source, "select pg_typeof(1)::text"))["rows"] == [["integer"]]


def test_secrets_stay_on_the_host(server: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store_context(database(server[0]))
    told = stored.data.decode() + stored.description + repr(stored.source and stored.source.spec)
    assert PASSWORD not in told
    assert "reader" not in told
    assert stored.source is not None
    assert stored.source.spec is None
    with pytest.raises(ConfigError, match="environment variable"):
        reopen_data(None)
    monkeypatch.setenv("SHOP_DB", server[0])
    named = open_data(database("$SHOP_DB"))
    assert named.spec == {"source": "database", "url": "$SHOP_DB", "schemas": ["public"]}
    assert reopen_data(named.spec).id == named.id == stored.source.id
    wrong = server[0].replace("reader", "nobody")
    with pytest.raises(ConfigError) as caught:
        open_data(database(wrong))
    for secret in (PASSWORD, "s3cret%2Fword"):
        assert secret not in str(caught.value)
    with pytest.raises(ConfigError, match="no schema 'other'"):
        open_data(Database(server[0], ("other",)))


def test_a_run_can_query_the_database(server: tuple[str, str], tmp_path: Path) -> None:
    code = "print(len(context['t']))\nFINAL(ctx.sql('select max(id) as m from t')[0]['m'])"
    engine = RLM(ScriptedClient([f"```repl\n{code}\n```"]), journal=tmp_path / "runs")
    result = engine.ask("What is the last id?", database(server[0]))
    assert result.answer == "3"
    kept = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    for secret in (PASSWORD, "s3cret%2Fword"):
        assert secret.encode() not in kept


@pytest.mark.parametrize("who", [0, 1], ids=["reader", "owner"])
@pytest.mark.parametrize("each", ALL, ids=lambda each: each["name"])
async def test_postgresql_resists_every_attack(
    server: tuple[str, str], who: int, each: dict[str, Any], tmp_path: Path
) -> None:
    source = PostgresSource(database(server[who]), LIMITS)
    await attack(source, each, tmp_path)
    source.close()


MODEL = """
import sys
from pathlib import Path
asked = sys.stdin.read()
if "count(*)" not in asked:
    print("```repl\\nprint(ctx.sql('select count(*) as n from t'))\\n```")
elif Path(__file__).with_name("away").exists():
    sys.exit("away for a moment")
else:
    print("```repl\\nFINAL(str(ctx.sql('select max(id) as n from t')))\\n```")
"""


def test_a_run_is_resumed_with_a_url_that_is_not_in_the_journal(
    server: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program = tmp_path / "model.py"
    program.write_text(MODEL)
    (tmp_path / "away").touch()

    def rlm(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rlm", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    model = f"command/{sys.executable} {program}"
    assert rlm("ask", "How many?", "--db", server[0], "--model", model).returncode == 1
    done = rlm("resume")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pass the same data again with --db URL")
    assert PASSWORD not in done.stderr
    done = rlm("resume", "--db", f"sqlite:///{tmp_path}/other.db")
    assert done.returncode == 1
    (tmp_path / "away").unlink()
    done = rlm("resume", "--db", server[0])
    assert (done.returncode, done.stdout.split()[-1]) == (0, "3"), done.stderr
    kept = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert b"s3cret" not in kept
