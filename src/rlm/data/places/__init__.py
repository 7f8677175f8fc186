"""Files elsewhere: web servers, object stores and the Hugging Face Hub, fetched by the host.

Users call `place`; `fetch` downloads its files into a folder of this user. None of this runs in a
sandbox, and an address never comes from a model or a document.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.data.places.addresses import (
        SCHEMES,
        WIDE,
        Fetched,
        FetchLimits,
        Place,
        is_address,
        place,
    )
    from rlm.data.places.fetching import Fetching, fetch
    from rlm.data.places.mirroring import mirror, mirrored_places

__all__ = [
    "SCHEMES",
    "WIDE",
    "FetchLimits",
    "Fetched",
    "Fetching",
    "Place",
    "fetch",
    "is_address",
    "mirror",
    "mirrored_places",
    "place",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "SCHEMES": "addresses",
        "WIDE": "addresses",
        "FetchLimits": "addresses",
        "Fetched": "addresses",
        "Fetching": "fetching",
        "Place": "addresses",
        "fetch": "fetching",
        "is_address": "addresses",
        "mirror": "mirroring",
        "mirrored_places": "mirroring",
        "place": "addresses",
    },
)
