"""The schema that is shipped is that of the types, and real events keep to it."""

import copy
import json
from importlib import import_module, resources, util
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from rlm.events import SCHEMA_VERSION, Event
from tests.records.trajectories.samples import scripted_log
from tests.shape.tree import ROOT

jsonschema: Any = import_module("jsonschema")


def generator() -> ModuleType:
    spec = util.spec_from_file_location("event_schema", ROOT / "tools" / "event_schema.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shipped() -> dict[str, Any]:
    text = resources.files("rlm.records").joinpath("events.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def test_the_checked_in_schema_is_fresh() -> None:
    made = generator()
    assert made.PAGE.read_text("utf-8") == made.text(), "run python tools/event_schema.py"


def test_every_event_has_a_definition_with_its_docstring() -> None:
    schema = shipped()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["x-schema-version"] == SCHEMA_VERSION
    events = get_args(Event)
    assert set(schema["discriminator"]["mapping"]) == {e.__struct_config__.tag for e in events}
    for event in events:
        definition = schema["$defs"][event.__name__]
        if event.__doc__:
            first = event.__doc__.strip().splitlines()[0]
            assert definition["description"].startswith(first)


async def test_every_event_of_a_real_run_is_valid(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(shipped())
    lines = (await scripted_log(tmp_path)).read_text("utf-8").splitlines()
    assert len({json.loads(line)["type"] for line in lines}) >= 11
    for line in lines:
        validator.validate(json.loads(line))


@pytest.mark.parametrize(
    "change",
    [{"type": "nothing"}, {"depth": "deep"}, {"run_id": None}, {"usage": 3}, {"steps": [1]}],
)
async def test_an_invalid_event_does_not_match_the_schema(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    last = json.loads((await scripted_log(tmp_path)).read_text("utf-8").splitlines()[-1])
    wrong = {**copy.deepcopy(last), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(shipped()).validate(wrong)
