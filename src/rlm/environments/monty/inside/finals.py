"""Handing in an answer: FINAL, FINAL_VAR, SUBMIT and submit_answer; as in `rlm.worker.finals`."""

from typing import Any

from rlm.environments.monty.inside.given import _rlm_ask, _rlm_max_chars
from rlm.environments.monty.inside.report import _rlm_as_json, _rlm_value_of, _rlm_variables

__all__ = ["FINAL", "FINAL_VAR", "SUBMIT", "answer", "submit_answer"]

# -- sent from here --

answer: Any = {"content": "", "ready": False}
_rlm_not_given = "_rlm_not_given"


def _rlm_hand_in(value: Any, how: str) -> None:
    text = str(value)
    if len(text) > _rlm_max_chars:
        raise ValueError(
            f"the answer has {len(text):,} characters, at most {_rlm_max_chars:,} are allowed"
        )
    _rlm_ask("hand in", [text, how, _rlm_as_json(value)], {})


def _rlm_meant_by(value: Any) -> Any:
    """Of the `answer` dict its content is meant; of everything else the value itself."""
    if not isinstance(value, dict) or value is not answer:
        return value
    if "content" in value and not value["content"]:
        raise ValueError('answer has no content yet: set answer["content"] first')
    return value.get("content", value)


def _rlm_resolve(name: Any) -> Any:
    """The value meant by FINAL_VAR's argument, which may be that value already."""
    if not isinstance(name, str):
        return _rlm_meant_by(name)
    cleaned = name.strip().strip("\"'`").strip()
    if not cleaned.isidentifier():
        return name
    try:
        return _rlm_meant_by(_rlm_value_of(cleaned))
    except NameError:
        pass
    known = _rlm_variables()
    if any(isinstance(value, str) and value == name for value in known.values()):
        return name
    listed = ", ".join(known) or "none yet"
    raise NameError(f"there is no variable {cleaned!r}; your variables: {listed}")


def _rlm_one_of(value: Any, given: Any, variable_name: Any) -> Any:
    meant = [each for each in (value, given) if each is not _rlm_not_given and each is not None]
    named = variable_name is not _rlm_not_given and variable_name is not None
    if len(meant) + (1 if named else 0) > 1:
        raise TypeError("give either the answer or variable_name=, and only one of them")
    if named:
        return _rlm_resolve(variable_name)
    if meant:
        return meant[0]
    if value is _rlm_not_given and given is _rlm_not_given:
        raise TypeError("give either the answer or variable_name=, and only one of them")
    return None


def FINAL(value: Any) -> None:  # noqa: N802
    _rlm_hand_in(value, "FINAL")


def FINAL_VAR(name: Any) -> None:  # noqa: N802
    _rlm_hand_in(_rlm_resolve(name), "FINAL_VAR")


def SUBMIT(  # noqa: N802
    value: Any = _rlm_not_given, *, answer: Any = _rlm_not_given, variable_name: Any = None
) -> None:
    _rlm_hand_in(_rlm_one_of(value, answer, variable_name), "SUBMIT")


def submit_answer(
    value: Any = _rlm_not_given, *, answer: Any = _rlm_not_given, variable_name: Any = None
) -> None:
    _rlm_hand_in(_rlm_one_of(value, answer, variable_name), "submit_answer")
