"""JSON schemas of Python types, and Python signatures of JSON schemas."""

import inspect
import operator
import reprlib
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from rlm.tools._results import cut, one_line

__all__ = [
    "Schemas",
    "described",
    "is_pydantic",
    "names_by_field",
    "shape_of",
    "unfolded",
    "validator_of",
]

MAX_STEPS = 2_000
"""The most schemas visited for one check or one shown type; references can be endless."""

MAX_DEPTH = 5
MAX_TYPE_CHARS = 80
MAX_CHOICES = 12

_SHORT = reprlib.Repr()
"""A value may be large, and is shown once for every schema that it does not fit."""
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 100
_SHORT.maxlist = _SHORT.maxdict = 40
_SHORT.maxlevel = 5

_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("str", (str,)),
    "integer": ("int", (int,)),
    "number": ("float", (int, float)),
    "boolean": ("bool", (bool,)),
    "null": ("None", (type(None),)),
    "array": ("list", (list,)),
    "object": ("dict", (dict,)),
}
_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", "at least", operator.ge),
    ("maximum", "at most", operator.le),
    ("exclusiveMinimum", "more than", operator.gt),
    ("exclusiveMaximum", "less than", operator.lt),
)
_LENGTHS = (
    ("minLength", "maxLength", str, "characters"),
    ("minItems", "maxItems", list, "items"),
)


class Schemas:
    """The schemas of one document: references are looked up only in it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._steps = 0

    # -- shown -------------------------------------------------------------------------------

    def shown(self, schema: Any) -> str:
        """Return the type of a schema as Python would write it; `Any` where it is unclear."""
        self._steps = 0
        return one_line(self._shown(schema, 0), MAX_TYPE_CHARS)

    def _shown(self, schema: Any, depth: int) -> str:
        schema = self._visited(schema, depth)
        if schema is None:
            return "Any"
        if (choices := _choices(schema)) is not None:
            few = ", ".join(cut(repr(each), 30) for each in choices[:MAX_CHOICES])
            return f"Literal[{few}{', …' if len(choices) > MAX_CHOICES else ''}]"
        if branches := _branches(schema):
            parts = [self._shown(each, depth + 1) for each in branches[:MAX_CHOICES]]
            return " | ".join(dict.fromkeys(parts))
        kinds = [self._kind_shown(kind, schema, depth) for kind in _kinds(schema)]
        return " | ".join(dict.fromkeys(kinds)) or "Any"

    def _kind_shown(self, kind: str, schema: Mapping[str, Any], depth: int) -> str:
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            return f"list[{self._shown(schema['items'], depth + 1)}]"
        if kind == "object" and (members := properties_of(schema)):
            needed = required_of(schema)
            listed = (
                f"{one_line(name, 30)!r}{'' if name in needed else '?'}: "
                f"{self._shown(each, depth + 1)}"
                for name, each in list(members.items())[:MAX_CHOICES]
            )
            return "{" + ", ".join(listed) + "}"
        if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
            return f"dict[str, {self._shown(schema['additionalProperties'], depth + 1)}]"
        return _TYPES[kind][0]

    # -- checked -----------------------------------------------------------------------------

    def problem(self, value: Any, schema: Any) -> str | None:
        """Return what is wrong with a value, or None if no problem is known."""
        self._steps = 0
        return next(self._problems(value, schema, 0), None)

    def _problems(self, value: Any, given: Any, depth: int) -> Iterator[str]:
        schema = self._visited(given, depth)
        if schema is None:
            return
        if (choices := _choices(schema)) is not None:
            if not any(_equal(value, each) for each in choices):
                yield self._misfit(value, schema, depth)
            return
        if branches := _branches(schema):
            if not any(self._fits(value, each, depth + 1) for each in branches):
                yield self._misfit(value, schema, depth)
            return
        kinds = _kinds(schema)
        if kinds and not any(_is_kind(value, kind) for kind in kinds):
            yield self._misfit(value, schema, depth)
            return
        yield from _out_of_bounds(value, schema)
        yield from self._inside(value, schema, depth)

    def _misfit(self, value: Any, schema: Mapping[str, Any], depth: int) -> str:
        wanted = one_line(self._shown(schema, depth), MAX_TYPE_CHARS)
        return f"expected {wanted}, got {cut(_SHORT.repr(value), 40)}"

    def _fits(self, value: Any, schema: Any, depth: int) -> bool:
        return next(self._problems(value, schema, depth), None) is None

    def _inside(self, value: Any, schema: Mapping[str, Any], depth: int) -> Iterator[str]:
        if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
            for index, item in enumerate(value):
                if self._steps > MAX_STEPS:
                    return
                for problem in self._problems(item, schema["items"], depth + 1):
                    yield f"item {index}: {problem}"
        elif isinstance(value, dict):
            for name in sorted(required_of(schema) - value.keys()):
                yield f"{one_line(name, 60)!r} is missing"
            for name, each in properties_of(schema).items():
                if name in value:
                    for problem in self._problems(value[name], each, depth + 1):
                        yield f"{one_line(name, 60)!r}: {problem}"

    # -- both --------------------------------------------------------------------------------

    def _visited(self, schema: Any, depth: int) -> Mapping[str, Any] | None:
        """Return the schema behind all references; None if any value fits, or after `MAX_STEPS`."""
        for _ in range(MAX_DEPTH):
            self._steps += 1
            if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._steps > MAX_STEPS:
                return None
            if "$ref" not in schema:
                return schema
            schema = self._referred(schema["$ref"])
        return None

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        found: Any = self._document
        for part in reference[2:].split("/")[: 2 * MAX_DEPTH]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        return found


def properties_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named members of an object, even if the schema is malformed."""
    found = schema.get("properties")
    return dict(found) if isinstance(found, Mapping) else {}


def required_of(schema: Mapping[str, Any]) -> set[str]:
    found = schema.get("required")
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def _choices(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _branches(schema: Mapping[str, Any]) -> list[Any]:
    found = schema.get("anyOf") or schema.get("oneOf")
    return found if isinstance(found, list) else []


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    found = schema.get("type")
    listed = found if isinstance(found, list) else [found]
    return [kind for kind in listed if isinstance(kind, str) and kind in _TYPES]


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind][1])


def _equal(value: Any, choice: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    return isinstance(value, bool) == isinstance(choice, bool) and bool(value == choice)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _out_of_bounds(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if _is_number(value):
        for key, words, holds in _BOUNDS:
            bound = schema.get(key)
            if _is_number(bound) and not holds(value, bound):
                yield f"must be {words} {bound}, got {value}"
    for least, most, kind, what in _LENGTHS:
        if isinstance(value, kind):
            low: Any = schema.get(least)
            high: Any = schema.get(most)
            if _is_number(low) and len(value) < low:
                yield f"must have at least {low} {what}, has {len(value)}"
            if _is_number(high) and len(value) > high:
                yield f"must have at most {high} {what}, has {len(value)}"


_PACKAGES = ("pydantic", "pydantic_core", "annotated_types")
_MAX_PARTS = 200
_ANNOTATED: Any = Annotated


def is_pydantic(kind: Any) -> bool:
    """Return whether this is a pydantic model, without importing pydantic."""
    return isinstance(kind, type) and callable(getattr(kind, "model_validate", None))


def validator_of(annotation: Any) -> Callable[[Any], Any] | None:
    """Return a validator for an annotation that involves pydantic; None for others."""
    if not any(map(_is_theirs, _parts(annotation))):
        return None
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(annotation).validate_python
    except (PydanticUserError, NameError):  # A type in it that only msgspec knows.
        return None


def shape_of(annotation: Any) -> str:
    """Return the members of a class, or the values of an enum, as in JSON; else nothing."""
    if not any(map(_has_members, _parts(annotation))):
        return ""
    schema = _schema_of(annotation)
    return "" if schema is None else Schemas(schema).shown(schema)


def described(annotation: Any) -> str:
    """Return what an annotation says about its parameter."""
    for note in getattr(annotation, "__metadata__", ()):
        text = getattr(note, "description", None) or getattr(note, "documentation", None)
        if isinstance(text, str):
            return text
    return ""


def unfolded(parameter: inspect.Parameter) -> inspect.Parameter:
    """Move a parameter's default `Field(...)` into its annotation."""
    default = parameter.default
    if type(default).__name__ != "FieldInfo" or not _is_theirs(default):
        return parameter
    kind: Any = Any if parameter.annotation is parameter.empty else parameter.annotation
    plain = parameter.empty if default.is_required() else default.get_default()
    return parameter.replace(annotation=_ANNOTATED[kind, default], default=plain)


def names_by_field(core: Any, parameters: Mapping[str, Any]) -> Iterator[set[str]]:
    """Yield the keywords that set the same field: a name and its aliases."""
    fields = getattr(core, "__pydantic_fields__", None)
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        yield {name, *_keys_of(field)}
    for name, annotation in parameters.items():
        for note in getattr(annotation, "__metadata__", ()):
            if _is_theirs(note):
                yield {name, *_keys_of(note)}


def _keys_of(field: Any) -> Iterator[str]:
    """Yield the keywords from which pydantic fills a field; for a path, its first part."""
    waiting = [getattr(field, "alias", None), getattr(field, "validation_alias", None)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        else:
            waiting += getattr(each, "choices", None) or (getattr(each, "path", None) or [])[:1]


def _schema_of(annotation: Any) -> dict[str, Any] | None:
    if validator_of(annotation) is not None:
        from pydantic import PydanticUserError, TypeAdapter

        try:
            return TypeAdapter(annotation).json_schema()
        except PydanticUserError:
            return None
    try:
        return msgspec.json.schema(annotation, schema_hook=_model_schema)
    except (TypeError, ValueError, NameError, AttributeError):
        return None


def _model_schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a class that msgspec does not know; if it has none, any value fits."""
    if not is_pydantic(kind):
        return {}
    schema: dict[str, Any] = kind.model_json_schema()
    return schema


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the annotation, everything inside it, and what `Annotated` adds."""
    waiting, seen = [annotation], 0
    while waiting and seen < _MAX_PARTS:
        part = waiting.pop()
        seen += 1
        yield part
        waiting += [*typing.get_args(part), *getattr(part, "__metadata__", ())]


def _is_theirs(part: Any) -> bool:
    owner = part if isinstance(part, type) else type(part)
    return is_pydantic(part) or owner.__module__.partition(".")[0] in _PACKAGES


def _has_members(part: Any) -> bool:
    """Return whether a type has members that its name does not show."""
    if not isinstance(part, type) or part.__module__ == "builtins":
        return False
    fields = ("__dataclass_fields__", "__struct_fields__", "__members__", "__total__")
    return is_pydantic(part) or any(hasattr(part, name) for name in fields)
