"""A run with citations, operators and several scripts, benchmarks, and a batch, for the browser."""

import asyncio
import random
from pathlib import Path
from typing import Any, NamedTuple

from rlm.messages import Price
from rlm.results import RunResult
from rlm.testing.scripted import ScriptedClient
from tests.batch.desk import Desk
from tests.bench.benches import ALL, answers_to, benched, knowing
from tests.browser.models import Part, cell, play_once
from tests.browser.viewers import elsewhere
from tests.operator_reader import codes_in, items_in

__all__ = ["DOCUMENTS", "QUERY", "Pair", "Workbench", "set_up"]

QUERY = "When did the harbour open, and who says so?"
RIGHT_TO_LEFT = "הנמל נפתח בשנת 1911 ונסגר שוב בשנת 1974"
WIDE = "港は１９１１年に開かれ、１９７４年に再び閉じられた。🚢👩‍👩‍👧"
QUOTE = "The harbour opened in the spring of 1911."


def _minutes() -> str:
    rnd = random.Random(3)
    words = ["boat", "crane", "ledger", "tide", "rope", "keeper", "signal", "cargo", "lamp"]
    lines = [
        f"Entry {number}: the {rnd.choice(words)} and the {rnd.choice(words)} were counted, "
        f"{rnd.getrandbits(30):08x}."
        for number in range(1, 401)
    ]
    lines[249] = f"Entry 250: {QUOTE}"
    lines[299] = "Entry 300: one very long line. " + "tide and rope and lamp; " * 400
    return "\n".join(lines)


DOCUMENTS = {
    "minutes.txt": _minutes(),
    "he.txt": f"{RIGHT_TO_LEFT}\n" * 12,
    "ja.txt": f"{WIDE}\n" * 12,
}
LOOK = "print(context['minutes.txt'][:900])\nprint(context['he.txt'][:80])"
LABEL = """\
lines = context["minutes.txt"].splitlines()[:60]
labels = classify(lines, ["boats", "other"])
found = llm_query("Who says so?\\n" + context["minutes.txt"].splitlines()[249])
print(labels.count("boats"), found)"""
FINISH = f"""\
cite({QUOTE!r})
cite(0, 30, "ja.txt")
FINAL("In the spring of **1911**; the keeper of the minutes says so.")"""


def _reply(prompt: str) -> str:
    items = items_in(prompt)
    codes = codes_in(prompt)
    if not codes:
        return "the keeper"
    said = [codes["boats" if "boat" in item else "other"] for item in items]
    return "\n".join(f"{number}: {each}" for number, each in enumerate(said, 1))


STEPS = {QUERY: [cell(LOOK, "I look at the documents."), cell(LABEL), cell(FINISH)]}
NEEDLES = {name: ALL[name] for name in ("s-niah/single", "multihop/2-hops")}


class Pair(NamedTuple):
    """Two runs of the same query, and where they are kept."""

    state: Path
    runs: tuple[RunResult, RunResult]


class Workbench(NamedTuple):
    """Where its run is kept, the run, two more that differ in one step, two folders of a benchmark,
    and the answers of a batch.
    """

    state: Path
    run: RunResult
    pair: Pair
    bench: Path
    other_bench: Path
    batch: Path


async def _bench(folder: Path, wrong: set[int], **options: Any) -> None:
    right = answers_to(NEEDLES, range(6))
    for seed in wrong:
        right |= dict.fromkeys(answers_to(NEEDLES, [seed]), f"not found <b>{RIGHT_TO_LEFT}</b>")
    await benched(
        knowing(right, price=Price(1.25, 10)),
        NEEDLES,
        folder,
        seeds=range(6),
        methods=("rlm", "plain"),
        engine_options=options,
    )


async def _batch(folder: Path) -> Path:
    def reply(request: Any) -> str:
        text = "".join(str(message.content) for message in request.messages)
        return "FINAL(yes)" if "row 1 " not in text else "FINAL(no)"

    desk = Desk(folder, ScriptedClient(rules=[("row ", reply)]))
    desk.write(
        [
            {"query": f"row {number} ?", "id": f"ticket {number}", "meta": {"gold": "yes"}}
            for number in range(12)
        ]
    )
    await desk.run(keeps_runs=True)
    return desk.out


OTHER_LABEL = LABEL.replace("[:60]", "[:30]")
OTHER_FINISH = FINISH.replace(
    "the keeper of the minutes says so", "entry 250 of the minutes says so"
)
OTHER_STEPS = {QUERY: [STEPS[QUERY][0], cell(OTHER_LABEL), cell(OTHER_FINISH)]}


def _pair(state: Path) -> Pair:
    one = play_once(state, Part(STEPS, _reply), QUERY, DOCUMENTS)
    other = play_once(state, Part(OTHER_STEPS, _reply), QUERY, DOCUMENTS)
    return Pair(state, (one, other))


def set_up(folder: Path) -> Workbench:
    def results() -> Path:
        async def make() -> Path:
            await _bench(folder / "first", {1, 4})
            await _bench(folder / "second", {4}, sub_model=ScriptedClient())
            return await _batch(folder)

        return asyncio.run(make())

    run = play_once(folder / "state", Part(STEPS, _reply), QUERY, DOCUMENTS)
    pair = _pair(folder / "pair")
    bench, other_bench = folder / "first", folder / "second"
    return Workbench(folder / "state", run, pair, bench, other_bench, elsewhere(results))
