"""What annotations say in pydantic's words: constraints, descriptions, models; and their shapes.

pydantic is asked only where an annotation uses it, and never imported otherwise.
"""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from rlm.tools._shapes import Schemas

__all__ = ["described", "is_pydantic", "names_by_field", "shape_of", "unfolded", "validator_of"]

_PACKAGES = ("pydantic", "pydantic_core", "annotated_types")
_MOST_PARTS = 200
_ANNOTATED: Any = Annotated


def is_pydantic(kind: Any) -> bool:
    """Whether this is a pydantic model, told without importing pydantic."""
    return isinstance(kind, type) and callable(getattr(kind, "model_validate", None))


def validator_of(annotation: Any) -> Callable[[Any], Any] | None:
    """What makes a value fit an annotation that pydantic has to do with; None for others."""
    if not any(map(_is_theirs, _parts(annotation))):
        return None
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(annotation).validate_python
    except (PydanticUserError, NameError):  # A type in it that only msgspec knows.
        return None


def shape_of(annotation: Any) -> str:
    """The members of a class, or the values of an enum, as a JSON value has them; else nothing."""
    if not any(map(_has_members, _parts(annotation))):
        return ""
    schema = _schema_of(annotation)
    return "" if schema is None else Schemas(schema).shown(schema)


def described(annotation: Any) -> str:
    """What is said of a parameter in its annotation."""
    for note in getattr(annotation, "__metadata__", ()):
        text = getattr(note, "description", None) or getattr(note, "documentation", None)
        if isinstance(text, str):
            return text
    return ""


def unfolded(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter whose default is a `Field(...)`, with that among its annotation instead."""
    default = parameter.default
    if type(default).__name__ != "FieldInfo" or not _is_theirs(default):
        return parameter
    kind: Any = Any if parameter.annotation is parameter.empty else parameter.annotation
    plain = parameter.empty if default.is_required() else default.get_default()
    return parameter.replace(annotation=_ANNOTATED[kind, default], default=plain)


def names_by_field(core: Any, parameters: Mapping[str, Any]) -> Iterator[set[str]]:
    """All keywords that set the same thing: a name and its aliases, in a model or a function."""
    fields = getattr(core, "__pydantic_fields__", None)
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        yield {name, *_keys_of(field)}
    for name, annotation in parameters.items():
        for note in getattr(annotation, "__metadata__", ()):
            if _is_theirs(note):
                yield {name, *_keys_of(note)}


def _keys_of(field: Any) -> Iterator[str]:
    """The keywords from which pydantic fills a field; of a path, the first part is one."""
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
    """The schema of a class inside of those that msgspec knows; anything, if it has none."""
    if not is_pydantic(kind):
        return {}
    schema: dict[str, Any] = kind.model_json_schema()
    return schema


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation, everything inside it, and what `Annotated` adds."""
    waiting, seen = [annotation], 0
    while waiting and seen < _MOST_PARTS:
        part = waiting.pop()
        seen += 1
        yield part
        waiting += [*typing.get_args(part), *getattr(part, "__metadata__", ())]


def _is_theirs(part: Any) -> bool:
    owner = part if isinstance(part, type) else type(part)
    return is_pydantic(part) or owner.__module__.partition(".")[0] in _PACKAGES


def _has_members(part: Any) -> bool:
    """Whether a name in a signature would not tell what is inside."""
    if not isinstance(part, type) or part.__module__ == "builtins":
        return False
    fields = ("__dataclass_fields__", "__struct_fields__", "__members__", "__total__")
    return is_pydantic(part) or any(hasattr(part, name) for name in fields)
