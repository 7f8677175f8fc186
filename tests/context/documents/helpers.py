"""What the tests of formats share: the extra, if it is installed, and the text of a document."""

from pathlib import Path

import pytest

from rlm.context.documents import formats

__all__ = ["NEEDS_EXTRA", "text_of"]

NEEDS_EXTRA = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        any(formats.missing_module(suffix) for suffix in formats.FORMATS),
        reason="the extra `documents` is not installed",
    ),
    pytest.mark.filterwarnings("ignore"),
]


def text_of(path: Path) -> str:
    found = formats.convert(str(path), path.suffix)
    assert isinstance(found, str), found
    return found
