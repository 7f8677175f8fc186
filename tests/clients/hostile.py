"""JSON that no honest server sends: anything at all, and real payloads with something swapped."""

import copy
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from rlm.clients._dialect import Dialect

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, originals: list[dict[str, Any]]) -> dict[str, Any]:
    """One of the payloads, with up to three of its values replaced or left out."""
    payload: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(_places(payload)))
        if isinstance(holder, dict) and draw(st.booleans()):
            holder.pop(key, None)
        elif isinstance(holder, list) or key in holder:
            holder[key] = draw(ANYTHING)
        if not _places(payload):
            break
    return payload


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a document that holds a value: its holder, and the key there."""
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any]] = list(value.items())
    else:
        pairs = list(enumerate(value)) if isinstance(value, list) else []
    return [place for key, inner in pairs for place in [(value, key), *_places(inner)]]


def withstands(dialect: Dialect, payloads: list[dict[str, Any]]) -> None:
    """Read all as one stream, and each alone: nothing but a ValueError may come out."""
    streamed = dialect.streamed()
    for payload in payloads:
        dialect.error_in(payload)
        assert isinstance(streamed.add(payload), str)
        assert isinstance(streamed.complete, bool)
        with suppress(ValueError):
            dialect.reply(payload)
    with suppress(ValueError):
        streamed.reply()
