"""Values that cells submit as they are: sets, dates and objects, which JSON does not have."""

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from rlm import RLM, ScriptedClient

VALUES = {
    "a set": (set[str], "{'a'}", {"a"}),
    "a frozen set": (frozenset[int], "frozenset({1})", frozenset({1})),
    "dates": (list[datetime.date], "[datetime.date(2020, 1, 2)]", [datetime.date(2020, 1, 2)]),
    "decimals": (dict[str, Decimal], "{'a': Decimal('1.50')}", {"a": Decimal("1.50")}),
    "a decimal or text": (float | str, "Decimal('3.5')", 3.5),
    "a whole decimal": (int | str, "Decimal('3.0')", 3),
    "a decimal that no float equals": (
        Decimal,
        "Decimal('0.' + '1' * 30)",
        Decimal("0." + "1" * 30),
    ),
    "ids": (list[UUID], "[UUID(int=1)]", [UUID(int=1)]),
    "a tuple": (tuple[int, str], "(1, 'a')", (1, "a")),
    "None": (int | None, "None", None),
}


@pytest.mark.parametrize(("model", "value", "answer"), VALUES.values(), ids=VALUES)
async def test_a_value_of_exactly_the_wanted_type_is_an_answer(
    model: Any, value: str, answer: Any
) -> None:
    """A strict run accepts it too, also if it is None."""
    imports = "import datetime\nfrom decimal import Decimal\nfrom uuid import UUID"
    client = ScriptedClient([f"```repl\n{imports}\nFINAL({value})\n```"])
    async with RLM(client) as one:
        result = await one.aask("Which?", "text", response_model=model, strict=True)
    assert (result.answer, result.stop_reason, result.has_answer) == (answer, "answer", True)
    assert type(result.answer) is type(answer)


async def test_a_dataclass_of_the_cell_is_an_object() -> None:
    cell = """
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar
class Kind(Enum):
    A = "a"
@dataclass
class Row:
    kind: Kind
    n: int
    unit: ClassVar[str] = "m"
FINAL([Row(Kind.A, 1)])"""
    async with RLM(ScriptedClient([f"```repl{cell}\n```"])) as one:
        result = await one.aask("Which?", "text", response_model=list[dict[str, str | int]])
    assert result.answer == [{"kind": "a", "n": 1}]


async def test_an_object_that_invents_methods_is_text() -> None:
    cell = """
class Inventive:
    def __getattr__(self, name):
        return lambda *given: "invented"
    def __str__(self):
        return "itself"
FINAL(Inventive())"""
    async with RLM(ScriptedClient([f"```repl{cell}\n```"])) as one:
        result = await one.aask("Which?", "text", response_model=str)
    assert result.answer == "itself"
