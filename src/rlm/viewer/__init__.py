"""A page that shows runs in a browser, live, and the server behind it.

`rlm view` starts it. Logs are untrusted: they are read by seeking, cut to size, and never used as a
path.
"""

__all__ = ["DEFAULT_PORT"]

DEFAULT_PORT = 3001
