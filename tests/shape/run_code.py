"""Runs the code of a document or an example: `python run_code.py ROOT`, a job as JSON on stdin.

A job is a list of {path, line, code, expected}. All share one namespace, like the session of a
reader who copies one block after the other, and none of them can leave this machine.
"""

import contextlib
import io
import json
import sys
import types
from pathlib import Path
from typing import Any


def run(job: list[dict[str, Any]]) -> None:
    from tests.network_guard import install
    from tests.shape.documents import missing_output

    install()
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    namespace = vars(main)
    sys.argv = [job[0]["path"]]
    sys.path[0] = str(Path(job[0]["path"]).parent)  # as if it were run as a script
    for part in job:
        namespace["__file__"] = part["path"]
        code = compile("\n" * (part["line"] - 1) + part["code"], part["path"], "exec")
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
        finally:
            sys.stdout.write(printed.getvalue())
            sys.stdout.flush()
        if (text := missing_output(part["expected"], printed.getvalue())) is not None:
            sys.exit(f"{part['path']}:{part['line']}: does not print {text!r}")


if __name__ == "__main__":
    sys.path[0] = sys.argv[1]
    run(json.load(sys.stdin))
