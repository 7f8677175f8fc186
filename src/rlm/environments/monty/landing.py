"""Runs in the session of full Python, once: binds what was carried over from monty.

The text of this file is a cell there; everything in it is taken away again by its last lines.
"""

import collections as _rlm_collections
import pickle as _rlm_pickle
from typing import Any as _RlmAny

__all__ = ["Lost"]


class Lost:
    """Stands where a variable was that could not be carried; whatever uses it is told so."""

    def __init__(self, name: str, why: str) -> None:
        self.__dict__["_told"] = f"{name} was lost when this session moved to full Python: {why}"

    def __repr__(self) -> str:
        return f"<{self.__dict__['_told']}>"

    def __getattr__(self, name: str) -> _RlmAny:
        raise NameError(self.__dict__["_told"])


def _rlm_unpacked(kind: str, value: _RlmAny) -> _RlmAny:
    if kind == "Counter":
        return _rlm_collections.Counter(value)
    if kind == "replies":
        made = globals()["FailedReply"]
        return [made(text) if failed else text for failed, text in value]
    return value


def _rlm_land(data: bytes) -> None:
    carried, lost = _rlm_pickle.loads(data)  # noqa: S301 (the host wrote it)
    for name, (kind, value) in carried.items():
        globals()[name] = _rlm_unpacked(kind, value)
    for name, why in lost.items():
        globals()[name] = Lost(name, why)


if "_rlm_carried" in globals():
    _rlm_land(globals()["_rlm_carried"])
    for _rlm_name in [*globals()]:
        if _rlm_name in ("Lost", "__all__") or _rlm_name.lower().startswith("_rlm"):
            globals().pop(_rlm_name)
