"""Write the JSON Schema of all events (`events.schema.json`) from the types in events.py.

`python tools/event_schema.py` writes it; `--check` only reports whether it is up to date.
"""

import inspect
import json
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from rlm.events import SCHEMA_VERSION, Event

PAGE = Path(__file__).resolve().parents[1] / "src" / "rlm" / "records" / "events.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ABOUT = (
    "One line of a log: something that happened in a run. Readers pass over fields and types they "
    "do not know; x-schema-version grows when a field changes its meaning."
)


def schema() -> dict[str, Any]:
    """Return one definition per type; the field `type` identifies an event."""
    events = get_args(Event)
    references, definitions = msgspec.json.schema_components(events, ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "description" in definition:  # Python 3.13 takes the indent out by itself.
            definition["description"] = inspect.cleandoc(definition["description"])
    tags = [event.__struct_config__.tag for event in events]
    return {
        "$schema": DIALECT,
        "$id": f"urn:recursivelm:events:{SCHEMA_VERSION}",
        "title": "An rlm event",
        "description": ABOUT,
        "x-schema-version": SCHEMA_VERSION,
        "type": "object",
        "required": ["type"],
        "oneOf": list(references),
        "discriminator": {
            "propertyName": "type",
            "mapping": {
                tag: reference["$ref"] for tag, reference in zip(tags, references, strict=True)
            },
        },
        "$defs": definitions,
    }


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        if PAGE.read_text("utf-8") == text():
            return 0
        sys.stderr.write(f"{PAGE.name} is stale: run python tools/event_schema.py\n")
        return 1
    PAGE.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
