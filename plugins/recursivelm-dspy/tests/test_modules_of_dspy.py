"""dspy's own modules that run code, on the sandbox: RLM, ProgramOfThought, CodeAct and Flex."""

from pathlib import Path

import dspy
import pytest
from pydantic import BaseModel
from recursivelm_dspy import SandboxInterpreter
from scripted import action, by_rule, fields, scripted, text_of

TEXT = "filler\n" * 20_000 + "the code is 7391\n" + "filler\n" * 20_000


def test_dspys_rlm_reads_a_text_and_submits_typed_outputs() -> None:
    lm, asked = scripted(
        action("where = context.find('code')\nprint(context[where:where + 12])"),
        action("number = int(context[where:][8:12])\nSUBMIT(answer=number, places=[where])"),
    )
    module = dspy.RLM(
        "context, question -> answer: int, places: list[int]",
        interpreter_factory=SandboxInterpreter,
    )
    with dspy.context(lm=lm):
        got = module(context=TEXT, question="What is the code?")
    assert (got.answer, got.places) == (7391, [TEXT.find("code")])
    assert got.trajectory[0]["output"] == "code is 7391"
    assert len(asked) == 2
    assert "7391" not in text_of(asked[0])


def test_dspys_rlm_repairs_its_mistakes() -> None:
    lm, asked = scripted(
        action("print(undefined)"),
        action("x +"),
        action("SUBMIT('not a number')"),
        action("SUBMIT(answer=4)"),
    )
    module = dspy.RLM("question -> answer: int", interpreter_factory=SandboxInterpreter)
    with dspy.context(lm=lm):
        got = module(question="What is 2 + 2?")
    outputs = [step["output"] for step in got.trajectory]
    assert got.answer == 4
    assert "NameError: name 'undefined' is not defined" in outputs[0]
    assert "invalid syntax" in outputs[1]
    assert outputs[2].startswith("[Type Error]")
    assert len(asked) == 4


def test_dspys_rlm_calls_its_model_in_batches_and_counts_them() -> None:
    def reply(text: str) -> str:
        if "Classify" in text:
            return "B" if "second" in text else "A"
        return action(
            "found = llm_query_batched([f'Classify: {each}' for each in items])\n"
            "print(found)\nSUBMIT(''.join(found) + llm_query('Classify: the second'))"
        )

    lm, asked = by_rule(reply)
    module = dspy.RLM("items: list[str] -> found", interpreter_factory=SandboxInterpreter)
    with dspy.context(lm=lm, track_usage=True):
        got = module(items=["first", "second", "third"])
    assert got.found == "ABAB"
    assert len(asked) == 5
    assert got.get_lm_usage()["scripted/model"]["prompt_tokens"] == 500


def test_dspys_rlm_stops_code_that_makes_too_many_calls() -> None:
    lm, asked = scripted(
        action("for _ in range(5):\n    llm_query('hi')"), "x", "y", action("SUBMIT('enough')")
    )
    module = dspy.RLM("question -> answer", max_llm_calls=2, interpreter_factory=SandboxInterpreter)
    with dspy.context(lm=lm):
        got = module(question="How often?")
    assert "LLM call limit exceeded" in got.trajectory[0]["output"]
    assert (got.answer, len(asked)) == ("enough", 4)


@pytest.mark.filterwarnings("ignore:Passing OpenAI-style message:DeprecationWarning")  # dspy's own
def test_dspys_rlm_has_tools_and_nested_agents() -> None:
    def shout(text: str, times: int = 1) -> str:
        """Repeat a text in capitals."""
        return text.upper() * times

    code = (
        "import dspy\n"
        "loud = shout('a', times=2) + shout(text='b')\n"
        "told = dspy.Predict('question -> reply')(question=loud)\n"
        "deep = dspy.RLM('text -> size: int')(text='xyz')\n"
        "SUBMIT(f'{loud} {told.reply} {deep.size}')"
    )
    lm, asked = scripted(action(code), fields(reply="fine"), action("SUBMIT(len(text))"))
    module = dspy.RLM("question -> answer", tools=[shout], interpreter_factory=SandboxInterpreter)
    with dspy.context(lm=lm):
        assert module(question="?").answer == "AAB fine 3"
    assert len(asked) == 3


class Frame(dspy.SandboxSerializable):
    """A table that is not JSON."""

    def sandbox_setup(self) -> str:
        return "import csv, io"

    def to_sandbox(self) -> bytes:
        return b"name,size\na,1\nb,2\n"

    def sandbox_assignment(self, var_name: str, data_expr: str) -> str:
        return f"{var_name} = list(csv.DictReader(io.StringIO({data_expr})))"

    def rlm_preview(self, max_chars: int = 500) -> str:
        return "two rows"


def test_dspys_rlm_accepts_values_that_are_built_in_the_sandbox() -> None:
    lm, _ = scripted(action("SUBMIT(sum(int(row['size']) for row in table))"))
    module = dspy.RLM("table -> total: int", interpreter_factory=SandboxInterpreter)
    with dspy.context(lm=lm):
        assert module(table=Frame()).total == 3


def test_the_configured_factory_serves_every_module() -> None:
    lm, _ = scripted(
        fields(reasoning="so", generated_code="```python\nSUBMIT({'answer': 6 * 7})\n```"),
        fields(reasoning="so", answer="42"),
    )
    made: list[SandboxInterpreter] = []

    def factory() -> SandboxInterpreter:
        made.append(SandboxInterpreter())
        return made[-1]

    with (
        dspy.context(lm=lm, interpreter_factory=factory),
        pytest.warns(DeprecationWarning, match=r"removed in 3\.5"),
    ):
        got = dspy.ProgramOfThought("question -> answer")(question="What is 6 * 7?")
    assert (got.answer, len(made)) == ("42", 1)
    with pytest.raises(dspy.primitives.code_interpreter.CodeInterpreterError, match="has ended"):
        made[0]("1")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_code_act_defines_its_tools_in_the_sandbox() -> None:
    lm, _ = scripted(
        fields(generated_code="```python\nprint(add(2, 3))\n```", finished="True"),
        fields(reasoning="so", answer="5"),
    )
    with pytest.warns(DeprecationWarning, match=r"removed in 3\.5"):
        module = dspy.CodeAct("question -> answer", [add], interpreter_factory=SandboxInterpreter)
    with dspy.context(lm=lm):
        got = module(question="What is 2 + 3?")
    assert got.answer == "5"
    assert "5" in str(got.trajectory)


class Person(BaseModel):
    name: str
    age: int


def test_models_of_pydantic_go_in_and_come_out() -> None:
    class Oldest(dspy.Signature):
        """Find the oldest."""

        people: list[Person] = dspy.InputField()
        oldest: Person = dspy.OutputField()

    lm, _ = scripted(action("SUBMIT(max(people, key=lambda each: each['age']))"))
    module = dspy.RLM(Oldest, interpreter_factory=SandboxInterpreter)
    people = [Person(name="a", age=3), Person(name="b", age=5)]
    with dspy.context(lm=lm):
        assert module(people=people).oldest == Person(name="b", age=5)


def test_a_program_can_be_copied_and_saved(tmp_path: Path) -> None:
    lm, _ = scripted(action("SUBMIT(1)"), action("SUBMIT(2)"))
    factory = SandboxInterpreter.factory(environment="local")
    module = dspy.RLM("question -> answer: int", interpreter_factory=factory)
    path = str(tmp_path / "program.json")
    module.save(path)
    again = dspy.RLM("question -> answer: int", interpreter_factory=factory)
    again.load(path)
    with dspy.context(lm=lm):
        assert module.deepcopy()(question="?").answer == 1
        assert again(question="?").answer == 2
