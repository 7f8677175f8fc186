"""How cells submit answers: FINAL, FINAL_VAR, SUBMIT, submit_answer and the `answer` dict."""

from __future__ import annotations

import functools
import json
import sys

from .replies import whole_text
from .turns import Turns, follow_threads

__all__ = ["Finals", "Submission"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .variables import Variables

_NOT_GIVEN: Any = object()


class Submission:
    """A submitted value, as text, and as JSON if it has a JSON form."""

    __slots__ = ("how", "json", "text")

    def __init__(self, value: Any, how: str) -> None:
        self.text = whole_text(value)
        self.how = how
        self.json = _json_of(value)


class _Answer(dict):  # type: ignore[type-arg]
    """The `answer` of a turn, which threads and tasks of earlier turns can't change."""

    __slots__ = ("_turns", "_was_set")
    __module__ = "__main__"

    def __init__(self, turns: Turns, content: dict[str, Any]) -> None:
        super().__init__(content)
        self._turns = turns
        self._was_set = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)


def _of_the_turn(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of `dict` that first checks which turn calls it."""

    @functools.wraps(method)
    def checked(self: _Answer, *arguments: Any, **named: Any) -> Any:
        self._turns.check_answer()
        self._was_set = True
        return method(self, *arguments, **named)

    return checked


for _method in (
    *(dict.__setitem__, dict.__delitem__, dict.__ior__),
    *(dict.setdefault, dict.update, dict.clear, dict.pop, dict.popitem),
):
    setattr(_Answer, _method.__name__, _of_the_turn(_method))


class Finals:
    """Records what a cell submits; the cell continues, and the last submission counts.

    Binding `answer` anew begins another turn: what threads and tasks of earlier turns submit is
    then refused.
    """

    def __init__(self, namespace: dict[str, Any], variables: Variables, turns: Turns) -> None:
        self._namespace = namespace
        self._variables = variables
        self.max_chars = 0
        self._submission: Submission | None = None
        follow_threads()
        self._turns = turns
        self._answer: Any = _Answer(self._turns, {"content": "", "ready": False})
        self._source = ""  # of the current cell
        self._naming: list[str] = []  # the cells of this turn that name `answer`
        self._last: tuple[Any, str] | None = None  # the last answer submitted by `ready`

    def names(self) -> dict[str, Any]:
        """Return the functions for submitting an answer, by name."""

        def FINAL(value: Any) -> None:
            """Submit a value as the answer."""
            self._submit(value, "FINAL")

        def FINAL_VAR(name: Any) -> None:
            """Submit the variable of that name, or the value itself, as the answer."""
            self._submit(self._resolve(name), "FINAL_VAR")

        def SUBMIT(
            value: Any = _NOT_GIVEN, *, answer: Any = _NOT_GIVEN, variable_name: Any = _NOT_GIVEN
        ) -> None:
            """Submit a value, or the variable named `variable_name`, as the answer."""
            self._submit(self._one_of(value, answer, variable_name), "SUBMIT")

        def submit_answer(
            value: Any = _NOT_GIVEN, *, answer: Any = _NOT_GIVEN, variable_name: Any = _NOT_GIVEN
        ) -> None:
            """Submit a value, or the variable named `variable_name`, as the answer."""
            self._submit(self._one_of(value, answer, variable_name), "submit_answer")

        functions = (FINAL, FINAL_VAR, SUBMIT, submit_answer)
        for function in functions:
            function.__module__ = "__main__"
            function.__qualname__ = function.__name__
        return {"answer": self._answer, **{each.__name__: each for each in functions}}

    def loaded(self, name: str, value: Any) -> Any:
        """Return what to bind for a value from the host: `answer` begins another turn."""
        if name != "answer" or not isinstance(value, dict):
            return value
        self._turns.begin(after_setup=value.pop("after_setup", False))
        self._answer = _Answer(self._turns, value)
        self._naming.clear()
        self._last = None
        return self._answer

    def begin_cell(self, source: str) -> None:
        """Forget what the last cell submitted."""
        self._submission = None
        self._answer._was_set = False
        self._turns.enter()
        self._source = source
        if "answer" in source:
            self._naming.append(source)

    def collect(self) -> tuple[Submission | None, str | None]:
        """Return what the cell submitted and the content of `answer`; this runs user code."""
        answer = self._namespace.get("answer")
        if answer is not self._answer and not self._may_have_bound():
            answer = self._namespace["answer"] = self._answer
        if not isinstance(answer, dict):
            return self._submission, None
        content = answer.get("content")
        if content is None or (isinstance(content, str) and not content):
            return self._submission, None
        if self._submission is None and answer.get("ready"):
            self._submit(content, "answer")
            self._note_if_kept(answer)
            return self._submission, self._submission and self._submission.text
        return self._submission, str(content)[: self.max_chars]

    def _may_have_bound(self) -> bool:
        """Whether the turn itself may have bound `answer` to another value.

        A function of an earlier turn may do so for it. But while code of earlier turns may still
        run, in threads or tasks, a cell has to do it.
        """
        if self._turns.current.is_first or not self._turns.are_shared:
            return True
        return any(_binds_answer(source) for source in self._naming)

    def _note_if_kept(self, answer: dict[str, Any]) -> None:
        """Note that an earlier cell set the answer; this one may have set it to an equal value."""
        assert self._submission is not None
        text = self._submission.text
        was_set = answer._was_set if isinstance(answer, _Answer) else _sets_answer(self._source)
        if self._last is not None and answer is self._last[0] and text == self._last[1]:
            self._submission.how = "answer" if was_set else "kept answer"
        self._last = answer, text

    def value_of(self, name: str) -> Any:
        """Return what to submit for a variable; raise KeyError, or ValueError if it is empty."""
        return self._meant_by(self._namespace[name])

    def _submit(self, value: Any, how: str) -> None:
        self._turns.check_answer()
        submission = Submission(value, how)
        size = len(submission.text)
        if size > self.max_chars:
            raise ValueError(
                f"the answer has {size:,} characters; at most {self.max_chars:,} are allowed"
            )
        self._submission = submission

    def _one_of(self, value: Any, answer: Any, variable_name: Any) -> Any:
        given = [each for each in (value, answer, variable_name) if each is not _NOT_GIVEN]
        meant = [each for each in given if each is not None] or given[:1]
        if len(meant) != 1:
            raise TypeError("give either the answer or variable_name=, not both")
        return self._resolve(meant[0]) if meant[0] is variable_name else meant[0]

    def _resolve(self, name: Any) -> Any:
        """Return the value that FINAL_VAR's argument names, or the argument itself."""
        if not isinstance(name, str):
            return self._meant_by(name)
        cleaned = name.strip().strip("\"'`").strip()
        if cleaned in self._namespace:
            return self.value_of(cleaned)
        known = self._variables.current()
        if not cleaned.isidentifier() or any(
            isinstance(value, str) and value == name for value in known.values()
        ):
            return name
        listed = ", ".join(known) or "none yet"
        raise NameError(f"no variable is named {cleaned!r}; your variables: {listed}")

    def _meant_by(self, value: Any) -> Any:
        """Return the content of the `answer` dict; return any other value unchanged."""
        is_answer = isinstance(value, dict) and value is self._namespace.get("answer")
        if not is_answer:
            return value
        if "content" in value and not value["content"]:
            raise ValueError('answer has no content yet: set answer["content"] first')
        return value.get("content", value)


def _binds_answer(source: str) -> bool:
    """Whether a cell may bind the name `answer`; True if it is not plain Python."""
    import ast  # Few turns get here.

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(
        (isinstance(node, ast.Name) and _binds_name(node)) or _binds(node, "answer")
        for node in ast.walk(tree)
    )


def _binds_name(node: Any) -> bool:
    if node.id == "answer":
        return type(node.ctx).__name__ != "Load"
    return node.id in {"exec", "eval", "globals", "locals", "vars"}


def _binds(node: Any, name: str) -> bool:
    """Whether a definition, an import, a clause or a pattern binds a name."""
    if hasattr(node, "asname"):
        return bool((node.asname or node.name).partition(".")[0] in (name, "*"))
    return name in (getattr(node, "name", None), getattr(node, "rest", None))


def _sets_answer(source: str) -> bool:
    """Whether a cell sets items of an `answer` that is a dict of its own, judging by its text."""
    import re  # Few cells replace the dict.

    return re.search(_SETTING, source) is not None


_SETTING = r"\banswer\s*(?:\[[^\]\n]*\]\s*)?(?:=(?!=)|\|=|\.\s*(?:update|setdefault)\b)"


def _json_of(value: Any) -> str | None:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except Exception:  # Whatever a user's type raises, it has no JSON form.
        return None


_EXACT = 2**53  # Floats represent all whole numbers below.


def _plain(value: Any) -> Any:
    """Return the usual JSON form of values such as sets, dates, decimals and NumPy's numbers."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    kind = type(value)
    for method in ("isoformat", "tolist"):
        if callable(found := getattr(kind, method, None)):  # A Mock has every method by itself.
            return found(value)
    name = f"{kind.__module__}.{kind.__name__}"
    if name == "decimal.Decimal":
        number = float(value)
        if kind(repr(number)) != value:
            return str(value)
        return int(number) if number.is_integer() and abs(number) < _EXACT else number
    if name == "uuid.UUID":
        return str(value)
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses  # It is loaded already.

        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if "enum" in sys.modules and isinstance(value, sys.modules["enum"].Enum):
        return value.value
    raise TypeError(f"{kind.__name__} has no JSON form")
