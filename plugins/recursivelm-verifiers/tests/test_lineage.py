"""Edges between requests, without a server."""

import pytest
from recursivelm_verifiers import RecursiveLMConfig
from recursivelm_verifiers.lineage import Lineage, request_id
from verifiers.v1.semantic import ACPInfo

from rlm.messages import ReplyKey


def key(kind: str, step: int, path: str = "root", number: int = 0) -> ReplyKey:
    return ReplyKey(path, f"{kind}{step}", number, kind, step)


def told(lineage: Lineage) -> set[tuple[str, str, str]]:
    return {
        (edge.source_request_id[:6], edge.type, edge.target_request_id[:6])
        for edge in lineage.edges().edges
    }


def test_names_are_valid_stable_and_different() -> None:
    keys = [key("step", 1), key("llm", 1), key("llm", 1, number=1), key("llm", 1, "root/ab.0")]
    names = [request_id(each) for each in keys]
    assert len(set(names)) == len(keys)
    assert names == [request_id(each) for each in keys]
    for name in names:
        ACPInfo(request_id=name)


def test_only_requests_with_replies_are_linked() -> None:
    lineage = Lineage()
    first, lost = lineage.asked(key("step", 1)), lineage.asked(key("llm", 1))
    lineage.answered(first)
    assert told(lineage) == set()
    lineage.answered(lost)
    assert told(lineage) == {("step.1", "subagent_call", "llm.1.")}


def test_attempts_of_one_call_are_one_request() -> None:
    lineage = Lineage()
    for _ in range(3):
        lineage.answered(lineage.asked(key("step", 1)))
    assert told(lineage) == set()


def test_a_child_run_is_called_and_returns() -> None:
    lineage = Lineage()
    for each in (key("step", 1), key("step", 1, "root/ab.0"), key("step", 2, "root/ab.0")):
        lineage.answered(lineage.asked(each))
    lineage.answered(lineage.asked(key("step", 3)))
    assert told(lineage) == {
        ("step.1", "subagent_call", "step.1"),
        ("step.1", "continuation", "step.2"),
        ("step.2", "subagent_return", "step.3"),
        ("step.1", "continuation", "step.3"),
    }


def test_a_compaction_counts_as_an_attempt_until_the_run_continues() -> None:
    lineage = Lineage()
    for each in (key("step", 1), key("compaction", 1)):
        lineage.answered(lineage.asked(each))
    assert told(lineage) == {("step.1", "compaction_attempt", "compac")}
    lineage.answered(lineage.asked(key("step", 2)))
    assert ("compac", "compaction", "step.2") in told(lineage)


def test_wrong_limits_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="max_steps"):
        RecursiveLMConfig(max_steps=0)
