"""A run in a notebook: one output that changes, then the card, whatever loop is running."""

from collections.abc import Callable

import pytest

from tests.notebook.kernels import Cell, Kernel

pytestmark = pytest.mark.heavy

SETUP = """
from rlm import RLM, ScriptedClient

REPLY = "I count the lines.\\n```repl\\nprint(len(context))\\n```"
LAST = "```repl\\nFINAL('There are **42** lines.')\\n```"

def engine(*script, **options):
    given = {"verbose": True, "delay_seconds": 0.0, **options}
    delay = given.pop("delay_seconds")
    return RLM(ScriptedClient(script or [REPLY, LAST], delay_seconds=delay), **given)
"""


def no_codes(cell: Cell) -> None:
    for each in cell.outputs:
        assert all("\x1b[" not in text for text in each.data.values()), each
        assert not each.kind.startswith("stray"), each


def test_a_run_is_shown_in_one_output_that_becomes_its_card(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run("result = engine().ask('How many lines?', 'a\\n' * 42)")
    no_codes(cell)
    assert cell.outputs[0].kind == "display_data"
    assert {each.kind for each in cell.outputs[1:]} == {"update_display_data"}
    assert len({each.display_id for each in cell.outputs}) == 1
    (card,) = cell.shown()
    assert "There are <strong>42</strong> lines." in card.html
    assert "I count the lines." in card.html
    assert "2 steps" in card.html
    assert not cell.printed


def test_a_result_that_is_the_value_of_the_cell_is_shown_once(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run("engine().ask('How many lines?', 'a\\n' * 42)")
    live, value = cell.shown()
    assert value.kind == "execute_result"
    assert "There are <strong>42</strong> lines." in value.html
    assert live.data == {"text/html": "<div></div>", "text/plain": ""}
    again = cells.run("_")
    assert [each.kind for each in again.outputs] == ["execute_result"]
    later = cells.run("kept = engine().ask('How many lines?', 'a\\n' * 42)")
    assert "<strong>42</strong>" in later.shown()[0].html
    assert "<strong>42</strong>" in cells.run("kept").shown()[0].html


def test_without_verbose_only_the_value_is_shown(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run("engine(verbose=False).ask('How many lines?', 'a\\n' * 42)")
    (value,) = cell.outputs
    assert value.kind == "execute_result"
    assert set(value.data) == {"text/plain", "text/markdown", "text/html"}
    assert value.text.startswith("<RunResult 'There are **42** lines.', answer, 2 steps")
    assert value.data["text/markdown"] == "There are **42** lines."


def test_awaiting_on_the_kernels_loop_shows_the_same(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run("result = await engine().aask('How many lines?', 'a\\n' * 42)")
    no_codes(cell)
    (card,) = cell.shown()
    assert "<strong>42</strong>" in card.html
    assert len(cell.of("display_data")) == 1


def test_display_updates_have_a_limited_rate(cells: Kernel) -> None:
    cells.run(SETUP)
    many = "'```repl\\nllm_query_batched([str(n) for n in range(500)])\\n```'"
    cell = cells.run(
        f"options = dict(sub_model=ScriptedClient(['x'] * 500))\n"
        f"result = engine({many}, LAST, **options).ask('Which?', 'text')\n"
        "print(len(result.events), round(result.seconds))"
    )
    events, seconds = map(int, cell.printed.split())
    assert events > 1_000
    displays = [each for each in cell.outputs if each.kind != "stream"]
    assert 2 <= len(displays) <= 4 + 2 * (seconds + 1)


def test_a_running_card_shows_the_current_step(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run("result = engine(delay_seconds=0.8).ask('How many lines?', 'a')")
    running = [each for each in cell.outputs if "rlm-running" in each.html.split("</style>")[1]]
    assert len(running) >= 3
    assert "How many lines?" in running[0].html
    assert any("step 2: asking the model" in each.html for each in running)
    assert any("print(len(context))" in each.html for each in running)
    assert "rlm-running" not in cell.shown()[0].html.split("</style>")[1]


def test_a_failed_cell_shows_its_last_line(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run(
        "result = engine('```repl\\n1 / 0\\n```', LAST).ask('How many lines?', 'a\\n' * 42)"
    )
    assert "<p class=rlm-error>ZeroDivisionError: division by zero</p>" in cell.shown()[0].html


def at_first_output(cells: Kernel) -> Callable[[object], None]:
    """Return a listener that interrupts the kernel once."""
    sent: list[bool] = []

    def interrupt(_: object) -> None:
        if not sent:
            sent.append(True)
            cells.interrupt()

    return interrupt


def test_interrupting_the_kernel_stops_the_run(cells: Kernel) -> None:
    cells.run(SETUP)
    cells.run("one = engine(delay_seconds=50)")
    cell = cells.run("one.ask('How many lines?', 'a')", at_first_output(cells))
    assert [each.text for each in cell.of("error")] == ["KeyboardInterrupt: "]
    running = cells.run("import time; time.sleep(0.5); print(len(one.runner.running))")
    assert running.printed == "0\n"
    last = [each for each in [*cell.outputs, *running.outputs] if each.html][-1]
    assert "rlm-running" not in last.html.split("</style>")[1]
    assert "rlm-problem" in last.html.split("</style>")[1]


def test_interrupting_the_kernel_stops_an_awaited_run(cells: Kernel) -> None:
    cells.run(SETUP)
    cells.run("one = engine(delay_seconds=50)")
    cell = cells.run("await one.aask('How many lines?', 'a')", at_first_output(cells))
    assert len(cell.of("error")) == 1
    assert cells.run("print(len(one.runner.running))").printed == "0\n"


def test_many_runs_of_one_cell_share_an_output(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run(
        "import asyncio\n"
        "one = engine(*[LAST] * 20)\n"
        "found = await asyncio.gather(*[one.aask(f'{n}?', 'a') for n in range(20)])\n"
        "print(len(found))"
    )
    assert cell.printed == "20\n"
    outputs = [each for each in cell.shown() if each.html]
    assert len(outputs) == 4
    assert "17 of 17 more runs done" in outputs[-1].html


def test_the_references_spelling_is_shown_in_the_same_way(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run(
        "one = RLM(backend='openai', backend_kwargs={'model_name': 'x', 'api_key': 'y'},"
        " verbose=True)\n"
        "print([type(each).__name__ for each in one.runner._listeners.recorders])"
    )
    assert cell.printed.endswith("['NotebookRecorder']\n")
    cell = cells.run("result = engine().completion('a\\n' * 42)")
    no_codes(cell)
    assert "<strong>42</strong>" in cell.shown()[0].html
    (value,) = cells.run("result").outputs
    assert "<strong>42</strong>" in value.html
    assert len(value.text) < 200


def test_hostile_text_is_escaped(cells: Kernel) -> None:
    cells.run(SETUP)
    bad = "<script>alert(1)</script><img src=http://x/y onerror=z>\x1b[2J![p](http://x/y.png)"
    cell = cells.run(
        f"bad = {bad!r}\n"
        "script = [bad + '\\n```repl\\nprint(1)\\nraise ValueError(' + repr(bad) + ')\\n```',"
        " f'Final Answer: {bad}']\n"
        "engine(*script).ask(bad, 'a')"
    )
    for each in cell.outputs:
        assert "<script>alert" not in each.html
        assert "<img" not in each.html


def test_an_operator_shows_its_progress_and_its_first_results(cells: Kernel) -> None:
    cells.run(
        "from rlm.operators import classify\n"
        "from rlm.testing import NoisyOracle\n"
        "labels = {f'line {n}': ['spam', 'ham'][n % 2] for n in range(300)}\n"
        "oracle = NoisyOracle(labels)"
    )
    cell = cells.run("classify(list(labels), ['spam', 'ham'], model=oracle, verbose=True)")
    no_codes(cell)
    live, value = cell.shown()
    assert live.html == "<div></div>"
    assert "<tr><th>1</th><td>ham</td></tr>" in value.html
    assert value.html.count("<tr>") == 20
    assert "280 more items" in value.html
    assert "classify: 300 items" in "".join(each.html for each in cell.outputs)


def test_events_can_be_iterated_in_a_cell(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run(
        "one = engine(verbose=False)\n"
        "kinds = [type(each).__name__ for each in one.iter('How many?', 'a')]\n"
        "print(kinds[0], kinds[-1])\n"
        "for each in engine(delay_seconds=50, verbose=False).iter('How many?', 'a'):\n"
        "    break\n"
        "print('left')"
    )
    assert cell.printed == "RunStarted RunEnded\nleft\n"


def test_cancelled_runs_leave_nothing_behind(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run(
        "import asyncio\n"
        "one = engine(delay_seconds=50)\n"
        "tasks = [asyncio.ensure_future(one.aask(f'{n}?', 'a')) for n in range(9)]\n"
        "await asyncio.sleep(1.5)\n"
        "for each in tasks:\n"
        "    each.cancel()\n"
        "await asyncio.gather(*tasks, return_exceptions=True)\n"
        "await asyncio.sleep(0)\n"
        "print(one.runner._listeners.recorders[-1]._views)"
    )
    assert cell.printed == "{}\n"
    outputs = [each for each in cell.shown() if each.html]
    assert len(outputs) == 4
    assert not any("rlm-running" in each.html.split("</style>")[1] for each in outputs)
    later = cells.run("await asyncio.sleep(2)")
    assert later.outputs == []


BATCH = """
import json
from pathlib import Path
from tempfile import mkdtemp
from rlm.batch import Batch, BatchFolder, Plan
from rlm.batch.rows import Source
from rlm.limits import Budget

home = Path(mkdtemp())
tasks = home / "rows.jsonl"
tasks.write_text("".join(json.dumps({"query": "How many?"}) + "\\n" for _ in range(8)))
folder = BatchFolder(home / "answers.jsonl")
one = engine(*[LAST] * 8, verbose=False, delay_seconds=0.2)
with folder.opened() as table, folder.answers(table) as answers:
    plan = Plan(concurrency=2)
    batch = Batch(one, Source(tasks), table, answers, Budget.shared(max_tokens=10**6), plan)
    await batch.run()
await one.aclose()
"""


def test_a_batch_is_one_updating_bar(cells: Kernel) -> None:
    cells.run(SETUP)
    cell = cells.run(BATCH)
    no_codes(cell)
    assert cell.outputs[0].kind == "display_data"
    assert {each.kind for each in cell.outputs[1:]} == {"update_display_data"}
    assert len(cell.outputs) > 2
    (bar,) = cell.shown()
    assert bar.data["text/plain"].startswith("8 of 8 rows (100 %)")
    assert '<progress value="8" max="8"' in bar.html
