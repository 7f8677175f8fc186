"""What a server's tool gave back, as a value for a cell."""

from typing import TYPE_CHECKING, Any

from rlm.errors import ToolError
from rlm.tools import _results
from rlm.tools._texts import one_line

if TYPE_CHECKING:
    from mcp.types import CallToolResult

__all__ = ["value_of"]

MOST_ERROR_CHARS = 500
_ONLY = "result"


def value_of(result: "CallToolResult", output_schema: Any) -> Any:
    """Structured content if there is some, else text, else a dict for each part that is no text."""
    if result.is_error:
        raise ToolError(_complaint(result))
    if "structured_content" in result.model_fields_set and result.structured_content is not None:
        return _results.plain(_unwrapped(result.structured_content, output_schema))
    parts = [_part(each) for each in result.content]
    if all(isinstance(each, str) for each in parts):
        return _results.plain("\n".join(parts)) if parts else None
    return _results.plain(parts[0] if len(parts) == 1 else parts)


def _unwrapped(value: Any, schema: Any) -> Any:
    """What is inside {"result": …}: servers put that around results that are no objects."""
    listed = schema.get("properties") if isinstance(schema, dict) else None
    is_wrapped = isinstance(listed, dict) and list(listed) == [_ONLY]
    if is_wrapped and isinstance(value, dict) and list(value) == [_ONLY]:
        return value[_ONLY]
    return value


def _part(content: Any) -> Any:
    if content.type == "text":
        return content.text
    return content.model_dump(mode="json", by_alias=True, exclude_none=True)


def _complaint(result: "CallToolResult") -> str:
    texts = [each.text for each in result.content if each.type == "text"]
    return one_line(" ".join(texts), MOST_ERROR_CHARS) or "the server does not say why"
