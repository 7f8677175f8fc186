"""Records the elizaOS plugin's example again: `python docs/images/make_eliza.py`, from a checkout.

It needs the environment of `make test-eliza`, where the real elizaOS is. The example runs in a
terminal of its own; what appears, and when, becomes a picture that moves.
"""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from docs.images.make_agent import Recording, drawn  # noqa: E402

PYTHON = ROOT / "build" / "venv-eliza" / "bin" / "python"
PROGRAM = "examples/message_loop.py"
TITLE = "An elizaOS agent finds one line in a prompt of 755,142 characters"


def record() -> Recording:
    """Run the example in a pseudo-terminal; what it wrote, and after how many seconds."""
    ours, theirs = pty.openpty()
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    started = time.monotonic()
    process = subprocess.Popen(  # noqa: S603
        [PYTHON, "-u", PROGRAM],
        cwd=ROOT / "plugins" / "plugin-rlm",
        env=keep,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen: Recording = []
    try:
        while data := os.read(ours, 65_536):
            seen.append((time.monotonic() - started, data.decode().replace("\r\n", "\n")))
    except OSError:  # Linux's way to tell the end of a terminal.
        pass
    finally:
        os.close(ours)
    if process.wait() != 0:
        sys.exit("the example failed:\n" + "".join(text for _, text in seen))
    return seen


def main() -> None:
    recording = record()
    print("".join(text for _, text in recording))
    picture = drawn(recording, f"python {PROGRAM}", TITLE)
    (HERE / "eliza-message-loop.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
