"""A context, encoded once: text as UTF-8 that keeps lone surrogates, the rest as JSON or bytes."""

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from rlm.context.describe import describe
from rlm.errors import ConfigError

__all__ = ["ContextValue", "StoredContext", "store_context"]

ContextValue = str | bytes | list[Any] | dict[str, Any] | None


class StoredContext:
    """One blob with its kind. Sessions read `chunks`; people and models get `description`."""

    def __init__(
        self, kind: Literal["text", "json", "bytes"], data: bytes, description: str
    ) -> None:
        self.kind: Literal["text", "json", "bytes"] = kind
        self.data = data
        self.description = description
        self.size_bytes = len(data)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        view = memoryview(self.data)
        for start in range(0, len(view), chunk_bytes):
            yield bytes(view[start : start + chunk_bytes])

    def text(self) -> str:
        """The context as one text, for strategies that read it all."""
        if self.kind == "bytes":
            return self.data.decode("utf-8", "replace")
        return self.data.decode("utf-8", "surrogatepass")

    def preview(self, chars: int) -> str:
        """The beginning of a text, shown to the model only when the caller asks for it."""
        if chars == 0 or self.kind == "bytes":
            return ""
        return self.data[: 4 * chars].decode("utf-8", "ignore")[:chars]

    def digest(self, query: str) -> str:
        """Names a (query, context) pair the same way on every execution."""
        pair = f"{self.kind}\0{self.sha256}\0{query}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(pair).hexdigest()[:16]


def store_context(value: ContextValue) -> StoredContext:
    """Encode what the caller handed in; None is an empty text."""
    if value is None:
        value = ""
    if isinstance(value, str):
        return StoredContext("text", value.encode("utf-8", "surrogatepass"), describe(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return StoredContext("bytes", bytes(value), describe(bytes(value)))
    try:
        data = json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"a context must be text, bytes, or lists and dicts that JSON can hold: {error}"
        ) from error
    return StoredContext("json", data, describe(value))
