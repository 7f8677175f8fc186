"""Errors cross the border of a process, and copies of them are equal."""

import concurrent.futures
import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlm.batch.rows
import rlm.errors
import rlm.utils.exceptions
import rlm_runtime
from rlm import RLM, CallRefused, NoAnswerError, ScriptedClient
from rlm.errors import RLMError

SAMPLES = {
    "Sequence": ("a",),
    "str": "a text",
    "float": 1.5,
    "int": 3,
    "bool": True,
    "tuple": ("a",),
    "Any": [1],
    "Path": Path("rows.jsonl"),
}


def public_errors() -> set[type[Exception]]:
    named = [
        getattr(module, name)
        for module in (rlm, rlm.errors, rlm.utils.exceptions, rlm_runtime)
        for name in module.__all__
    ]
    errors = {each for each in named if inspect.isclass(each) and issubclass(each, Exception)}
    return errors | every_subclass(RLMError)


def every_subclass(kind: type[Exception]) -> set[type[Exception]]:
    found = {each for each in kind.__subclasses__() if each.__module__.startswith("rlm")}
    return found.union(*map(every_subclass, found))


def sample_of(kind: type[Exception], *, with_message: bool) -> Exception:
    """Make an error with a value for each argument of its constructor."""
    if "__init__" not in vars(kind) and not inspect.isfunction(kind.__init__):
        return kind("a text")
    known = inspect.signature(kind.__init__).parameters.values()
    given = {
        each.name: next(value for name, value in SAMPLES.items() if name in str(each.annotation))
        for each in list(known)[1:]
        if with_message or each.name != "message" or each.default is each.empty
    }
    return kind(**given)


def raised_again(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        caught.add_note("a note")
        return caught


def pickled(protocol: int) -> Callable[[Any], Any]:
    return lambda error: pickle.loads(pickle.dumps(error, protocol))


COPIES = [copy.copy, copy.deepcopy, *map(pickled, range(pickle.HIGHEST_PROTOCOL + 1))]


@pytest.mark.parametrize("with_message", [True, False])
@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("kind", sorted(public_errors(), key=repr))
def test_a_copy_has_the_message_and_the_attributes(
    kind: type[Exception], copied: Callable[[Any], Any], with_message: bool
) -> None:
    error = raised_again(sample_of(kind, with_message=with_message))
    other = copied(error)
    assert type(other) is kind
    assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


def test_a_subclass_of_a_program_is_copied_too() -> None:
    error = Late(7)
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), other.minutes, other.limit) == (Late, str(error), 7, "seconds")


class Late(CallRefused):
    def __init__(self, minutes: int) -> None:
        super().__init__(f"{minutes} minutes late", limit="seconds")
        self.minutes = minutes


def unanswered() -> None:
    with RLM(ScriptedClient([""] * 9), limits={"max_steps": 1}) as engine:
        engine.ask("What?", "context", strict=True)


def test_an_error_leaves_a_process_of_a_pool() -> None:
    with pytest.raises(NoAnswerError) as here:
        unanswered()
    start = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ProcessPoolExecutor(1, mp_context=start) as pool,
        pytest.raises(NoAnswerError) as there,
    ):
        pool.submit(unanswered).result()
    assert str(there.value) == str(here.value)
    assert there.value.result.stop_reason == here.value.result.stop_reason
