"""Scripts of fake models: functions for tests.endpoint.endpoint that answer by the request."""

import itertools
from typing import Any

from tests.endpoint import Answer

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x1b[31m[bold]x[/bold][link=http://e]y[/link]\x9b\u202e\rend"
AS_CODE = ascii(HOSTILE)


def submits(code: str) -> Answer:
    """Every step is this one cell."""

    def answer(_: dict[str, Any]) -> str:
        return f"```repl\n{code}\n```"

    return answer


def never_ends() -> Answer:
    """Every step prints something new, and the run never ends."""
    numbers = itertools.count(1)

    def answer(_: dict[str, Any]) -> str:
        return f"```repl\nresult = 'found so far: {next(numbers)}'\nprint(result)\n```"

    return answer
