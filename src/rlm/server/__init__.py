"""`rlm serve`: runs behind the HTTP interface that OpenAI's clients speak.

Starlette and uvicorn come with the extra `server` and are imported only by the modules that need
them. What arrives is a stranger's: it is measured before it is read, and checked before it runs.
"""

__all__ = ["DEFAULT_PORT"]

DEFAULT_PORT = 8765
