"""`rlm resume`: what it takes from the record and from the command line, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rlm import RLM, Limits, ModelError, ScriptedClient
from rlm.cli._output import show
from rlm.cli._resuming import keywords_of, recipe_of
from rlm.config import RunConfig
from rlm.records.journal import Archive, Places
from rlm.results import RunResult, UsageSummary
from rlm.testing.fake_server import FakeServer
from rlm.testing.fake_server.script import Answer
from tests.cli import kept
from tests.cli.conftest import Run
from tests.cli.running import one_clear_line


def test_a_run_resumes_after_its_limit_is_raised(state: Path, run: Run) -> None:
    stopped = kept.limited(state)
    code, out, err = run("resume", "last", "--max-tokens", "26")
    assert (code, out) == (3, "")
    assert f"Continue with: rlm resume {stopped.run_id} --max-tokens N\n" in err
    code, out, err = run("resume", stopped.run_id[:15], "--max-tokens", "1000000")
    assert (code, out) == (4, f"{kept.FOUND}\n")
    assert f"run {stopped.run_id} ended: passages, 2 steps" in err
    assert "Continue with" not in err
    assert f"Run {stopped.run_id} already has its passages:" in run("resume", "last")[2]
    assert run("resume") == run("resume", "last"), "the last run is meant if none is named"
    as_json = run("resume", "last", "--json", "--quiet")
    assert as_json[2] == ""
    assert json.loads(as_json[1])["answer"] == kept.FOUND


@pytest.mark.parametrize("ending", [".sqlite", ".sqlite-wal", ".tail"])
def test_a_journal_writable_by_others_is_shown_but_not_resumed(
    state: Path, run: Run, ending: str
) -> None:
    """A record names its model, which can be a program."""
    stopped = kept.limited(state)
    path = (state / "runs" / stopped.run_id).with_suffix(ending)
    path.touch()
    path.chmod(0o666)
    for words in (("resume", "last", "--max-tokens", "1000000"), ("fork", "last", "--step", "1")):
        code, out, err = run(*words)
        assert (code, out) == (1, "")
        told = f"run {stopped.run_id} is not continued: {path}: other users can write to it"
        assert told in one_clear_line(err)
    assert run("show", "last")[0] == 0
    for each in path.parent.iterdir():  # SQLite gave its mode to those beside it.
        each.chmod(0o600)
    assert run("resume", "last", "--max-tokens", "1000000")[0] == 4


def test_samples_and_citations_are_resumed(state: Path, run: Run) -> None:
    text = "The access code for silver-dolphin is 4821.\n"
    query = "What is the access code for silver-dolphin?"
    with RLM("offline/extractive", journal=state, limits=Limits(max_tokens=26)) as rlm:
        stopped = rlm.ask(query, text, cite=True, samples=2)
    assert (stopped.stop_reason, stopped.answer) == ("limit", None)
    code, out, err = run("resume", "last", "--max-tokens", "1000000")
    assert code == 4
    assert out.endswith(f"1. line 1\n   {text}\n[1] line 1 “{text.strip()}”\n")
    assert "2 of 2 samples agree." in err
    again = json.loads(run("resume", "last", "--json", "--quiet")[1])
    assert [each["votes"] for each in again["samples"]] == [2, 2]
    assert [each["text"] for each in again["citations"]] == [text.strip()]
    assert run("show", "last")[1].endswith(f"{text}[1] line 1 “{text.strip()}”\n")


def test_the_shape_of_a_typed_answer_is_kept_on_resume(state: Path, run: Run) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    client = ScriptedClient(["```repl\nFINAL({'n': 4})\n```"])
    with RLM(client, journal=state) as rlm:
        rlm.ask("How many?", response_model=schema)
    code, out, _ = run("resume", "last")  # It has answered: no program is needed to say so.
    assert (code, json.loads(out)) == (0, {"n": 4})
    assert json.loads(run("resume", "last", "--json")[1])["answer"] == {"n": 4}


def ask_and_fail(state: Path, **options: Any) -> str:
    """A run of a program whose model fails; its id."""
    client = ScriptedClient([ModelError("down")])
    with RLM(client, journal=state, **options) as rlm, pytest.raises(ModelError):
        rlm.ask("Why?", "text")
    (found,) = Places(state).listed()
    return found.run_id


def test_a_run_with_tools_of_a_program_must_be_resumed_by_that_program(
    state: Path, run: Run
) -> None:
    def send(to: str) -> str:
        """Send it."""
        return to

    run_id = ask_and_fail(state, tools={"send": send, "top": 3})
    code, out, err = run("resume", run_id)
    assert (code, out) == (1, "")
    told = one_clear_line(err)
    assert "(send, top, ScriptedClient)" in told
    assert f'run_id="{run_id}"' in told
    code, _, err = run("fork", run_id, "--step", "1")
    assert (code, one_clear_line(err)) == (1, told)
    assert len(list(Places(state).listed())) == 1


def test_a_turn_of_a_chat_cannot_be_resumed(state: Path, run: Run) -> None:
    limits = Limits(max_tokens=25)
    with RLM(kept.OFFLINE, journal=state, limits=limits) as rlm, rlm.chat("text") as chat:
        chat.ask("What is it?")
    for arguments in (["resume", "last"], ["fork", "last", "--step", "1"]):
        code, out, err = run(*arguments)
        assert (code, out) == (1, "")
        assert "was a turn of a chat: the variables" in one_clear_line(err)


def test_recorded_settings_are_passed_to_the_rlm(state: Path) -> None:
    options: dict[str, Any] = {
        "seed": 7,
        "prologue": "Be brief.",
        "preview_chars": 50,
        "orchestrator": False,
    }
    with RLM(kept.OFFLINE, journal=state, windows={kept.OFFLINE: 12_345}, **options) as rlm:
        rlm.ask(kept.QUESTION, kept.TEXT)
        config = rlm.config
    archive = Archive(Places(state))
    (file,) = archive.places.listed()
    facts = archive.facts(file)
    keywords = keywords_of(recipe_of(facts), {"max_steps": 99}, (1.0, 2.0))
    with RLM(**keywords) as again:
        assert again.config.limits.max_steps == 99
        assert again.config == _with_steps(config, 99)
        info = again.runner.resources.routes[kept.OFFLINE].info
        assert (info.window_tokens, info.price and info.price.output_per_million) == (12_345, 2.0)


def _with_steps(config: RunConfig, steps: int) -> RunConfig:
    return replace(config, limits=replace(config.limits, max_steps=steps))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "does not record how it was run"),
        ({"config": {"model": 3}}, "does not record how it was run"),
        (
            {"config": {"model": "a/b", "sub_model": "a/b", "limits": {"max_steps": -1}}},
            "max_steps",
        ),
        ({"config": {"model": "a/b", "sub_model": "a/b"}}, "there is no provider 'a'"),
        (
            {
                "config": {"model": "a/b", "sub_model": "a/b"},
                "infos": {"a/b": {"price": {"input_per_million": -1, "output_per_million": 1}}},
            },
            "a price must be at least 0 US dollars",
        ),
    ],
)
def test_an_invalid_record_is_reported_in_one_line(
    state: Path, run: Run, settings: object, told: str
) -> None:
    stopped = kept.limited(state)
    facts = {
        "run_id": stopped.run_id,
        "query": "?",
        "started": 1.0,
        "context": {"kind": "text", "sha256": "0" * 64, "size_bytes": 1, "description": ""},
        "settings": settings,
    }
    kept.rewrite(state, stopped.run_id, "run", facts)
    code, out, err = run("resume", "last")
    assert (code, out) == (1, "")
    assert told in one_clear_line(err)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fork"], "Missing argument 'RUN'"),
        (["resume", "last", "--quiet", "--verbose"], "cannot be combined"),
        (["resume", "last", "--timeout", "0"], "is not a number above 0"),
        (["resume", "last", "-m", "x/y"], "No such option '-m'"),
        (["fork", "last"], "Missing option '--step'"),
        (["fork", "last", "--step", "0"], "'--step': 0"),
        (["fork", "last", "--step", "1", "--edit", "-", "-f", "-"], "both read stdin"),
    ],
)
def test_wrong_usage_of_resume(run: Run, arguments: list[str], told: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert told in one_clear_line(err)


@pytest.mark.parametrize(
    ("stop_reason", "limit", "advice"),
    [
        ("answer", None, ""),
        ("steps", "steps", "Continue with: rlm resume r1 --max-steps N\n"),
        ("limit", "tokens", "Continue with: rlm resume r1 --max-tokens N\n"),
        ("limit", "cost_usd", "Continue with: rlm resume r1 --budget-usd USD\n"),
        ("limit", "seconds", "Continue with: rlm resume r1 --timeout SECONDS\n"),
        ("limit", "calls", ""),
        ("cancelled", None, "Continue with: rlm resume r1\n"),
        ("error", None, "Continue with: rlm resume r1\n"),
        ("error", "stuck", "another model (-m).\n"),
        ("error", "wrong_shape", "another model (-m) or a simpler schema.\n"),
        ("error", "errors", "another model (-m) or --strategy direct.\n"),
        ("error", "invalid_responses", "another model (-m) or --strategy direct.\n"),
    ],
)
def test_resuming_is_advised_only_where_it_can_lead_to_another_end(
    stop_reason: Any, limit: str | None, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = RunResult(
        answer=None if stop_reason == "error" else "A guess",
        stop_reason=stop_reason,
        answer_source="none",
        run_id="r1",
        steps=3,
        usage=UsageSummary(),
        cost_usd=0.0,
        seconds=1.0,
        limit=limit,
        detail="it ended",
    )
    show(ended, "m/m", as_json=False, typed=False, quiet=False, resumable=True)
    err = capsys.readouterr().err
    assert err.endswith(advice)
    assert ("Continue with" in err) == advice.startswith("Continue with")
    show(ended, "m/m", as_json=False, typed=False, quiet=True, resumable=True)
    assert "Continue with" not in capsys.readouterr().err


def test_a_run_that_would_end_the_same_way_again_is_not_to_be_resumed(
    tmp_path: Path, run: Run
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "integer"}))
    with FakeServer([Answer(reply="FINAL(many)")], loop=True) as server:
        options = ("-m", "openai-compatible/m", "--schema", str(schema), "--strategy", "rlm")
        code, out, err = run("ask", "?", *options, stdin=b"text", LLM_BASE_URL=server.openai_url)
        asked = len(server.requests)
        assert (code, out, asked) == (1, "", 3)
        assert "3 times in a row" in err
        assert "Continue with" not in err
        assert "ask again with another model" in err
        assert run("resume", "last", LLM_BASE_URL=server.openai_url)[0] == 1
        assert len(server.requests) == asked


def test_a_setting_that_cannot_work_is_not_to_be_resumed(run: Run) -> None:
    text = b"word " * 200_000
    code, out, err = run("ask", "?", "--strategy", "direct", "-m", kept.OFFLINE, stdin=text)
    assert (code, out) == (1, "")
    assert "strategy='direct' sends the whole context" in err
    assert "Continue with" not in err


async def test_the_advised_strategy_depends_on_the_size_of_the_context(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with RLM(ScriptedClient(["Let me think."] * 9), strategy="rlm") as engine:
        ended = await engine.aask("?", "a" * 1_000)
    assert ended.limit == "invalid_responses"
    for chars, strategy in ((999, "mapreduce"), (1_000, "direct")):
        show(ended, "m/m", as_json=False, typed=False, quiet=False, call_chars=chars)
        assert capsys.readouterr().err.endswith(f"--strategy {strategy}.\n")


@pytest.mark.parametrize(("status", "resumes"), [(404, False), (401, True)])
def test_a_run_whose_model_does_not_exist_is_not_to_be_resumed(
    run: Run, status: int, resumes: bool
) -> None:
    with FakeServer([Answer(status=status, error="model_not_found")], loop=True) as server:
        options = ("-m", "openai-compatible/gone", "--strategy", "rlm")
        code, out, err = run("ask", "?", *options, stdin=b"text", LLM_BASE_URL=server.openai_url)
    assert (code, out) == (1, "")
    assert ("Continue with: rlm resume" in err) is resumes
    assert ("Ask again with a model that the server has: -m MODEL.\n" in err) is not resumes
