"""Frames of pandas, polars, PyArrow and others, written once as a temporary Parquet file.

They are read by Arrow's own protocol, so none of these libraries is imported here.
"""

import importlib
import weakref
from pathlib import Path
from typing import Any, Protocol

from rlm._util.distribution import install_command
from rlm.errors import ConfigError

__all__ = ["Frame", "TemporaryTable", "is_frame"]

_ARROW = "__arrow_c_stream__"
_UNNAMED_INDEX = "__index_level_"
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class Frame(Protocol):
    """A table in memory: a frame of pandas, polars, PyArrow, or any library with this protocol."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def is_frame(value: object) -> bool:
    """Return whether a value is a table in memory, by Arrow's protocol; a column is not one."""
    return callable(getattr(value, _ARROW, None)) and hasattr(value, "columns")


class TemporaryTable:
    """A frame as a Parquet file, which is removed with this object."""

    def __init__(self, frame: Any) -> None:
        parquet = _library("pyarrow.parquet", frame)
        arrow = importlib.import_module("pyarrow")
        import shutil
        import tempfile

        self.folder = tempfile.mkdtemp(prefix="rlm-table-")
        self.path = Path(self.folder) / "table.parquet"
        self.close = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        try:
            with arrow.RecordBatchReader.from_stream(frame) as reader:
                schema = arrow.schema(_stored(_named(field), arrow) for field in reader.schema)
                with parquet.ParquetWriter(self.path, schema) as writer:
                    for batch in reader:
                        columns = [_decoded(column, arrow) for column in batch.columns]
                        writer.write_batch(arrow.RecordBatch.from_arrays(columns, schema=schema))
        except Exception as error:
            self.close()
            raise ConfigError(
                f"the {type(frame).__name__} can't be passed as a table: "
                f"{' '.join(str(error).split())[:300]}"
            ) from error


def _named(field: Any) -> Any:
    """Return a field; the unnamed index of a pandas frame becomes a column named `index`."""
    number = field.name.removeprefix(_UNNAMED_INDEX).removesuffix("__")
    if field.name.startswith(_UNNAMED_INDEX) and number.isdigit():
        return field.with_name("index" if number == "0" else f"index_{number}")
    return field


def _stored(field: Any, arrow: Any) -> Any:
    """Return a field with a type that Parquet has.

    Categories of polars become texts, and durations become seconds.
    """
    if arrow.types.is_duration(field.type):
        return field.with_type(arrow.float64())
    return field.with_type(arrow.string()) if _is_viewed(field.type, arrow) else field


def _decoded(column: Any, arrow: Any) -> Any:
    if arrow.types.is_duration(column.type):
        parts = column.cast(arrow.int64()).cast(arrow.float64(), safe=False)
        compute = importlib.import_module("pyarrow.compute")
        return compute.divide(parts, _PER_SECOND[column.type.unit])
    if not _is_viewed(column.type, arrow):
        return column
    return column.dictionary.cast(arrow.string()).take(column.indices)


def _is_viewed(kind: Any, arrow: Any) -> bool:
    return bool(arrow.types.is_dictionary(kind) and kind.value_type == arrow.string_view())


def _library(name: str, frame: Any) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"to pass a {type(frame).__name__} as a table, {install_command('tables')}; or pass "
            "its text or its rows (see docs/guides/contexts.md)"
        ) from error
