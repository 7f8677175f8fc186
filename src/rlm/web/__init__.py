"""The HTTP border that the server, the viewer and the gateway share.

It contains host and origin checks, tokens, event streams, error bodies and the start and end of a
uvicorn server. Starlette and uvicorn are imported only by the modules that need them, so that
`import rlm` stays fast.
"""

__all__: list[str] = []
