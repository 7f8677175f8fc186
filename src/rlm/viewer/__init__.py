"""A page that shows runs in a browser, live, and the server behind it.

`rlm view` starts it, and `app` returns the same as an ASGI application. Logs are untrusted: they
are read by seeking, cut to size, and never used as a path.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.viewer.mounting import MountedViewer, app

__all__ = ["DEFAULT_PORT", "MountedViewer", "app"]

DEFAULT_PORT = 3001

__getattr__, __dir__ = on_demand(__name__, {"MountedViewer": "mounting", "app": "mounting"})
