"""Which tools a child gets: in its REPL, in its prompt and at its bridge."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.engine.bridge import Bridge
from rlm.errors import CallRefused
from rlm.events import ToolCalled
from rlm.messages import Request

DEPTH = Limits(max_depth=3)


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def tide(port: str) -> str:
    """When the tide turns."""
    return f"six at {port}"


def radio(text: str) -> str:
    """Tell everybody."""
    return text.upper()


class Sea:
    """A run whose model is played by one script for each depth."""

    def __init__(self, *cells_by_depth: list[str], **options: Any) -> None:
        self._left = [list(map(cell, cells)) for cells in cells_by_depth]
        self.prompts: list[list[str]] = [[] for _ in cells_by_depth]
        self.told: list[list[str]] = [[] for _ in cells_by_depth]
        options = {"tools": [tide, radio], "limits": DEPTH, **options}
        with RLM(ScriptedClient([self._reply] * 20), **options) as rlm:
            self.result = rlm.ask("root: What?", run_id=options.get("journal") and "one")

    def _reply(self, request: Request) -> str:
        texts = [str(message.content) for message in request.messages]
        depth = next(
            n for n, w in ((2, "grandchild:"), (1, "child:"), (0, "root:")) if w in texts[1]
        )
        self.prompts[depth].append(texts[0])
        self.told[depth].append(texts[-1])
        return self._left[depth].pop(0)

    @property
    def answer(self) -> Any:
        return json.loads(self.result.answer_json or "null")


SEEN = "FINAL(sorted({'tide', 'radio', 'RATE'} & set(globals())))"
CHILD = "rlm_query('child: What?', context='c'"


@pytest.mark.parametrize(
    ("grant", "seen"),
    [
        ("", ["radio", "tide"]),
        (", tools=None", ["radio", "tide"]),
        (", tools=[]", []),
        (", tools=['tide']", ["tide"]),
        (", tools=[tide]", ["tide"]),
        (", tools=(radio, 'tide', tide)", ["radio", "tide"]),
        (", tools={'radio'}", ["radio"]),
    ],
)
def test_a_child_gets_only_the_tools_it_is_granted(grant: str, seen: list[str]) -> None:
    sea = Sea([f"import ast\nFINAL(ast.literal_eval({CHILD}{grant})))"], [SEEN])
    assert sea.answer == seen
    prompt = sea.prompts[1][0]
    assert ["radio"] * ("`radio(" in prompt) + ["tide"] * ("`tide(" in prompt) == seen


def test_a_hand_made_call_of_an_ungranted_tool_is_refused() -> None:
    hand_made = "try: call_tool('radio', text='x')\nexcept ToolFailed as error: FINAL(str(error))"
    sea = Sea([f"FINAL({CHILD}, tools=['tide']))"], [hand_made])
    assert sea.result.answer == "unknown tool 'radio'; tools: tide"
    assert not [event for event in sea.result.events if isinstance(event, ToolCalled)]


def test_granting_an_unknown_tool_is_an_error_the_cell_can_repair() -> None:
    sea = Sea(
        [
            f"{CHILD}, tools=['tides'])",
            f"{CHILD}, tools='tide')",
            f"{CHILD}, tools=[3])",
            f"FINAL({CHILD}, tools=['tide']))",
        ],
        ["FINAL(tide('Ur'))"],
    )
    unknown, text, number = sea.told[0][1:]
    assert "CallFailed: a child can't have the tool 'tides'; it may have: radio, tide" in unknown
    assert 'TypeError: tools must be a list, such as tools=["search"]' in text
    assert "TypeError: tools must contain names of tools" in number
    assert sea.result.answer == "six at Ur"


def test_a_child_can_grant_only_tools_it_has() -> None:
    grandchild = "rlm_query('grandchild: What?', context='g'"
    sea = Sea(
        [f"FINAL({CHILD}, tools=['tide']))"],
        [
            f"{grandchild}, tools=['radio'])",
            f"first = {grandchild})\nFINAL([first, {grandchild}, tools=[])])",
        ],
        [SEEN, SEEN],
    )
    assert "a child can't have the tool 'radio'; it may have: tide" in sea.told[1][1]
    assert sea.result.answer == str(["['tide']", "[]"])


def test_a_child_can_be_granted_only_tools_in_sub_tools() -> None:
    sea = Sea(
        [f"{CHILD}, tools=['tide'])", f"FINAL({CHILD}, tools=['radio']))"],
        [SEEN],
        sub_tools=[radio],
    )
    assert "a child can't have the tool 'tide'; it may have: radio" in sea.told[0][1]
    assert sea.result.answer == "['radio']"


def test_values_are_granted_in_the_same_way_as_tools() -> None:
    tools = {"tide": tide, "radio": radio, "RATE": {"tool": 3, "description": "a day"}}
    both = f"FINAL([{CHILD}, tools=['RATE']), {CHILD}, tools=['tide'])])"
    sea = Sea([both], [SEEN, SEEN], tools=tools)
    assert sea.result.answer == str(["['RATE']", "['tide']"])
    assert ["RATE" in prompt for prompt in sea.prompts[1]] == [True, False]


def test_a_batch_grants_every_child_the_same_tools() -> None:
    batch = "rlm_query_batched(['child: a', 'child: b'], contexts=['x', 'y'], tools=['tide'])"
    sea = Sea([f"FINAL({batch})"], [SEEN, SEEN])
    assert sea.result.answer == str(["['tide']", "['tide']"])


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({}, True),
        ({"tools": None}, False),
        ({"sub_tools": []}, False),
        ({"limits": Limits(max_depth=1)}, False),
    ],
)
def test_the_prompt_explains_grants_only_if_there_is_something_to_grant(
    options: dict[str, Any], is_told: bool
) -> None:
    sea = Sea(["FINAL(1)"], **options)
    assert ('`rlm_query(..., tools=["name"])`' in sea.prompts[0][0]) == is_told


def test_a_resumed_run_keeps_children_that_differ_only_in_their_tools_apart(tmp_path: Path) -> None:
    """Children that differ only in their tools are different, and none is run twice."""
    both = f"FINAL([{CHILD}, tools=['tide']), {CHILD}), {CHILD}, tools=[])])"
    sea = Sea([both], [SEEN] * 3, journal=tmp_path)
    assert sea.result.answer == str(["['tide']", "['radio', 'tide']", "[]"])
    paths = {getattr(event, "path", "") for event in sea.result.events} - {""}
    assert len(paths) == 4
    again = Sea([both], [], journal=tmp_path)
    assert again.result.answer == sea.result.answer


@pytest.mark.parametrize("names", ["tide", [1], {"tide": 1}, [None]])
async def test_the_bridge_refuses_malformed_grants(names: Any) -> None:
    bridge = Bridge.__new__(Bridge)
    bridge.grants = {"tide"}
    with pytest.raises(CallRefused, match="malformed rlm_query"):
        bridge._granted(names)
