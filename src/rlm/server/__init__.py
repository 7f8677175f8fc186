"""`rlm serve`: runs behind the HTTP interface that OpenAI's clients speak.

`app` returns the same as an ASGI application, which you can mount in your own. Requests come from
strangers: they are measured before they are read, and checked before they run.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.server.serving import ServerApp, app

__all__ = ["DEFAULT_PORT", "ServerApp", "app"]

DEFAULT_PORT = 8765

__getattr__, __dir__ = on_demand(__name__, {"ServerApp": "serving", "app": "serving"})
