"""The worked example of the guide that needs DuckDB and PyArrow, as it is written."""

from pathlib import Path
from typing import Any

import pytest

from tests.shape.documents import blocks_run_by, run_python

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tables.md"


def test_the_blocks_of_the_guide_print_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb", reason="make test-data installs it")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = blocks_run_by(GUIDE, "make test-data")
    assert len(blocks) == 2
    for block in blocks:
        run_python(block, names)
