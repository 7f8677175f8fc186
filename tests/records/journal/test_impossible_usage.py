"""Usage in a journal is checked like that of a reply: its file may come from anyone."""

import json
import math
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, ConfigError, Limits, ModelError, ScriptedClient
from rlm.calls.billing import checked_usage
from rlm.calls.paid_earlier import PaidEarlier
from rlm.chat.saved import About, about_from, about_to_bytes
from rlm.limits import Amount, Budget
from rlm.messages import KEPT, Price, Reply, ReplyKey, Usage
from rlm.records.journal import Archive, Journal, Places
from rlm.records.journal.archive import counted_in, paid_in
from rlm.records.journal.database import reading, replies_in
from rlm.records.journal.facts import result_from
from rlm.records.journal.records import packed

RUN_ID = "20261115-120000-000-abcdef01"
COUNTS = st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-2, 1_000)
COSTS = st.none() | st.floats() | st.floats(-1, 1)
USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cached_tokens=COUNTS,
    reasoning_tokens=COUNTS,
    cost_usd=COSTS,
    requests=COUNTS,
    cache_write_tokens=COUNTS,
)
KINDS = st.sampled_from(["step", "llm", "final", KEPT])
TEXTS = st.sampled_from(["", "\ud800"])
"""A lone surrogate is stored in another form."""

IMPOSSIBLE = [
    Usage(cost_usd=math.nan),
    Usage(cost_usd=math.inf),
    Usage(cost_usd=-1.0),
    Usage(input_tokens=-5_000, cost_usd=0.0),
    Usage(output_tokens=1 << 60, cost_usd=0.0),
    Usage(requests=-1, cost_usd=0.0),
]


@given(st.lists(st.tuples(USAGES, KINDS, TEXTS), max_size=4))
def test_no_usage_in_a_journal_refills_a_budget(found: list[tuple[Usage, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.journal"
        with closing(Journal(path)) as journal:
            for number, (usage, kind, text) in enumerate(found):
                key = ReplyKey("root", "d", number, kind, 1)
                journal.copy(key, Reply(text=text, usage=usage))
        possible = [usage for usage, _, _ in found if checked_usage(usage) is not None]
        with closing(Journal(path)) as journal:
            budget = Budget(Limits())
            PaidEarlier(journal, ("m", "m")).count_all(budget)
        assert counted_in(path) == budget.used
        assert min(budget.used.tokens, budget.used.picodollars) >= 0
        assert budget.used.tokens >= sum(each.total_tokens for each in possible)
        assert paid_in(path).total_tokens <= budget.used.tokens


@given(st.fixed_dictionaries({"used": st.lists(COUNTS, max_size=4), "usage": st.just([])}))
def test_no_answer_of_a_child_run_refills_a_budget(spent: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.journal"
        with closing(Journal(path)) as journal:
            key = ReplyKey("root/a.0", "answer", 0, "child", 1)
            journal.copy(key, Reply(text="", opaque=spent))
        with reading(path) as connection:
            kept = [reply.opaque["used"] for *_, reply in replies_in(connection)]
        assert all(len(used) == 3 and min(used) >= 0 for used in kept)


def interrupted(folder: Path) -> Path:
    """Return the journal of a run that was interrupted in its second step."""
    down = ModelError("down", status=400)
    with (
        RLM(ScriptedClient(["Hm.", down], price=Price(1, 1)), journal=folder) as one,
        pytest.raises(ModelError, match="down"),
    ):
        one.ask("?", "abc", run_id=RUN_ID)
    return Places(folder).journal_of(RUN_ID)


def change(path: Path, usage: Usage) -> None:
    """Replace the usage of the only reply."""
    with reading(path) as connection:
        ((*_, key, reply),) = replies_in(connection)
    record = packed(key, msgspec.structs.replace(reply, usage=usage))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update replies set records = ?", (record,))


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=repr)
def test_a_run_with_an_impossible_usage_is_damaged(tmp_path: Path, usage: Usage) -> None:
    path = interrupted(tmp_path)
    change(path, usage)
    client = ScriptedClient([])
    with (
        RLM(client, journal=tmp_path) as one,
        pytest.raises(ConfigError, match="is damaged: the reply of step 1 can't be read"),
    ):
        one.ask("?", "abc", run_id=RUN_ID)
    assert client.requests == []
    assert counted_in(path) == Amount()


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=repr)
def test_a_result_with_an_impossible_usage_is_refused(tmp_path: Path, usage: Usage) -> None:
    with RLM(ScriptedClient(["```repl\nFINAL(1)\n```"]), journal=tmp_path) as one:
        one.ask("?", "abc", run_id=RUN_ID)
    archive = Archive(Places(tmp_path))
    (run,) = archive.places.listed()
    with closing(Journal(run.path)) as journal:
        facts: Any = journal.facts()
        plain = {**msgspec.to_builtins(usage), "cost_usd": usage.cost_usd}
        facts["result"]["usage"]["total"] = facts["end"]["usage"] = plain
        with pytest.raises(ConfigError, match="its usage is not possible"):
            result_from(facts["result"])
        journal.describe(end=facts["end"], result=facts["result"])
    (listed,) = archive.summaries()
    # The journal writes null for NaN and infinity.
    assert isinstance(listed, ConfigError) or listed.cost_usd is None


@pytest.mark.parametrize("usage", IMPOSSIBLE, ids=repr)
@pytest.mark.parametrize("name", ["usage", "kept"])
def test_a_saved_chat_with_an_impossible_usage_is_damaged(usage: Usage, name: str) -> None:
    about = About(chat_id="0" * 12)
    plain = msgspec.json.decode(about_to_bytes(about))
    plain[name] = {**msgspec.to_builtins(usage), "cost_usd": usage.cost_usd}
    with pytest.raises(ConfigError, match="this saved chat is damaged"):
        about_from(json.dumps(plain).encode())
