"""`RecursiveLM`: the engine as a module of dspy."""

import asyncio
import datetime
from pathlib import Path
from typing import Any, Literal, cast

import dspy
import pytest
from pydantic import BaseModel
from recursivelm_dspy import RecursiveLM
from scripted import by_rule, cell, scripted, text_of

from rlm import ConfigError
from rlm.errors import NoAnswerError

TEXT = "filler\n" * 20_000 + "the code is 7391\n" + "filler\n" * 20_000


def test_a_signature_gives_a_prediction() -> None:
    lm, asked = scripted(
        cell("where = context.find('code')\nprint(where)"),
        cell("FINAL(context[where:where + 12])"),
    )
    module = RecursiveLM("context, question -> answer")
    with dspy.context(lm=lm):
        got = module(context=TEXT, question="What is the code?")
    assert got.answer == "code is 7391"
    assert (got.run["steps"], got.run["requests"], got.run["stop_reason"]) == (2, 2, "answer")
    shown = text_of(asked[0])
    assert "`question`: What is the code?" in shown
    assert "holds `context`" in shown
    assert not any("7391" in text_of(request) for request in asked)


class Risk(BaseModel):
    name: str
    level: Literal["low", "high"]


def test_several_outputs_have_their_types() -> None:
    class Review(dspy.Signature):
        """Review a contract, strictly."""

        contract: str = dspy.InputField(desc="the whole contract")
        since: datetime.date = dspy.InputField()
        risks: list[Risk] = dspy.OutputField(desc="worst first")
        count: int = dspy.OutputField()
        note: str | None = dspy.OutputField()

    lm, asked = scripted(
        cell("FINAL({'risks': [{'name': 'a', 'level': 'huge'}], 'count': 1, 'note': None})"),
        cell("FINAL({'risks': [{'name': 'a', 'level': 'high'}], 'count': '1', 'note': None})"),
    )
    with dspy.context(lm=lm):
        got = RecursiveLM(Review)(contract=TEXT, since=datetime.date(2026, 1, 2))
    assert (got.risks, got.count, got.note) == ([Risk(name="a", level="high")], 1, None)
    shown = text_of(asked[0])
    for part in (
        "Review a contract, strictly.",
        "(the whole contract)",
        "(worst first)",
        "2026-01-02",
    ):
        assert part in shown
    assert len(asked) == 2, "the first answer had the wrong shape"


@pytest.mark.parametrize(
    ("kind", "code", "wanted"),
    [
        ("int", "5", 5),
        ("float", "0.5", 0.5),
        ("bool", "True", True),
        ("list[int]", "[1, 2]", [1, 2]),
        ("dict[str, int]", "{'a': 1}", {"a": 1}),
        ("Literal['a', 'b']", "'b'", "b"),
        ("Optional[str]", "None", None),
        ("str", "'text'", "text"),
    ],
)
def test_one_output_has_its_type(kind: str, code: str, wanted: Any) -> None:
    lm, _ = scripted(cell(f"FINAL({code})"))
    with dspy.context(lm=lm):
        assert RecursiveLM(f"text -> found: {kind}")(text="abc").found == wanted


def test_the_context_inputs_are_chosen_from_the_signature() -> None:
    def fields(signature: str, context: Any = None) -> tuple[str, ...]:
        return RecursiveLM(signature, context=context).context_fields

    assert fields("question, context -> answer") == ("context",)
    assert fields("document, question -> answer") == ("document",)
    assert fields("old, new, question -> answer", ("old", "new")) == ("old", "new")
    assert fields("question -> answer", ()) == ()
    with pytest.raises(ConfigError, match="no input 'text'; inputs: document, question"):
        fields("document, question -> answer", "text")
    with pytest.raises(ConfigError, match="an output can't be called 'run'"):
        RecursiveLM("text -> run")


def test_several_inputs_as_one_context() -> None:
    lm, asked = scripted(cell("FINAL(sorted(context['old'].keys() ^ set(context['new'])))"))
    module = RecursiveLM("old: dict, new: list, question -> found: list", context=("old", "new"))
    with dspy.context(lm=lm):
        assert module(old={"a": 1}, new=["a", "b"], question="?").found == ["b"]
    assert "is a dict of `old`, `new`" in text_of(asked[0])


def test_inputs_are_checked() -> None:
    module = RecursiveLM("context, question -> answer")
    with dspy.context(lm=scripted("x")[0]):
        with pytest.raises(ValueError, match="needs the input 'question'"):
            module(context="x")
        with pytest.raises(ValueError, match="no input 'other'"):
            module(context="x", question="y", other="z")
        with pytest.raises(ValueError, match=r"20,001 characters.*name it in `context`"):
            module(context="x", question="y" * 20_001)
    with pytest.raises(dspy.LMNotConfiguredError, match="pass lm="):
        module(context="x", question="y")


def test_a_file_is_a_context_too(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("one\ntwo\n")
    lm, _ = scripted(cell("FINAL(len(context.splitlines()))"))
    with dspy.context(lm=lm):
        assert RecursiveLM("log -> lines: int")(log=path).lines == 2


def test_code_asks_another_model_and_dspy_counts_all_usage() -> None:
    lm, asked = scripted(cell("FINAL(llm_query('Say A or B: ' + context))"))
    sub_lm, sub_asked = by_rule(lambda text: "B" if "second" in text else "A")
    sub_lm.model = "scripted/small"
    module = RecursiveLM("text -> label", sub_lm=sub_lm)
    with dspy.context(lm=lm, track_usage=True):
        got = module(text="the second one")
    assert (got.label, len(asked), len(sub_asked)) == ("B", 1, 1)
    used = {name: each["total_tokens"] for name, each in got.get_lm_usage().items()}
    assert used == {"scripted/model": 101, "scripted/small": 101}
    assert len(module.history) == 2, "dspy's history knows both requests"


def test_a_run_without_an_answer_and_a_model_that_fails_raise() -> None:
    lm, _ = scripted(*[cell("print('?')")] * 2, "nothing", "nothing")
    module = RecursiveLM("text -> n: int", limits={"max_steps": 2})
    with dspy.context(lm=lm), pytest.raises(NoAnswerError):
        module(text="x")
    failing, _ = scripted(dspy.LMRateLimitError("slow down", model="scripted/model"))
    with dspy.context(lm=failing), pytest.raises(dspy.LMRateLimitError, match="slow down"):
        module(text="x")


async def test_async_programs() -> None:
    lm, asked = by_rule(lambda _: cell("FINAL(len(context))"))
    module = RecursiveLM("text -> size: int")
    with dspy.context(lm=lm, track_usage=True):
        done = await asyncio.gather(*(module.acall(text="x" * n) for n in range(1, 7)))
        last = await cast("Any", dspy.asyncify(module))(text="x" * 7)
    assert [each.size for each in [*done, last]] == list(range(1, 8))
    assert len(asked) == 7
    assert done[0].get_lm_usage()["scripted/model"]["total_tokens"] == 101, "its own, not the sum"


def test_evaluate_and_parallel_work_with_threads() -> None:
    lm, asked = by_rule(lambda _: cell("FINAL(len(context))"))
    module = RecursiveLM("text -> size: int")
    examples = [dspy.Example(text="x" * n, size=n).with_inputs("text") for n in range(1, 9)]
    evaluate = dspy.Evaluate(
        devset=examples,
        metric=lambda wanted, got, trace=None: wanted.size == got.size,
        num_threads=4,
        display_progress=False,
    )
    with dspy.context(lm=lm):
        assert evaluate(module).score == 100.0
        done = dspy.Parallel(num_threads=4, disable_progress_bar=True)(
            [(module, each) for each in examples]
        )
    assert [each.size for each in done] == list(range(1, 9))
    assert len(asked) == 16


def test_a_module_can_be_copied_saved_and_optimized(tmp_path: Path) -> None:
    lm, asked = by_rule(lambda _: cell("FINAL(len(context))"))
    module = RecursiveLM("text -> size: int", limits={"max_steps": 3})
    [(name, predictor)] = module.named_predictors()
    assert name == "predict"
    predictor.signature = predictor.signature.with_instructions("Count every character.")
    module.save(str(tmp_path / "module.json"))
    again = RecursiveLM("text -> size: int")
    again.load(str(tmp_path / "module.json"))
    again.set_lm(lm)
    assert again(text="abc").size == again.deepcopy()(text="xyz").size == 3
    assert all("Count every character." in text_of(request) for request in asked)
    module.save(str(tmp_path / "whole"), save_program=True)
    loaded = dspy.load(str(tmp_path / "whole"), allow_pickle=True)
    with dspy.context(lm=lm, trace=[]):
        assert loaded(text="four").size == 4
        [(traced, inputs, prediction)] = dspy.settings.trace
    assert (traced, inputs, prediction.size) == (loaded.predict, {"text": "four"}, 4)


def test_an_optimizer_finds_demonstrations() -> None:
    lm, _ = by_rule(lambda _: cell("FINAL(len(context))"))
    examples = [dspy.Example(text="x" * n, size=n).with_inputs("text") for n in (1, 2)]
    optimizer = dspy.BootstrapFewShot(
        metric=lambda wanted, got, trace=None: wanted.size == got.size, max_bootstrapped_demos=2
    )
    with dspy.context(lm=lm):
        compiled = optimizer.compile(RecursiveLM("text -> size: int"), trainset=examples)
        assert [demo.size for demo in compiled.predict.demos] == [1, 2]
        assert compiled(text="abc").size == 3
