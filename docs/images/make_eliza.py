"""Record the elizaOS plugin's example: `python docs/images/make_eliza.py`, from a checkout.

It needs the environment of `make test-eliza`, which has the real elizaOS. The example runs in a
terminal; the output, with its timing, becomes an animated picture.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from docs.images.make_agent import drawn, recorded  # noqa: E402

PYTHON = ROOT / "build" / "venv-eliza" / "bin" / "python"
PROGRAM = "examples/message_loop.py"
TITLE = "An elizaOS agent finds one line in a prompt of 755,142 characters"


def main() -> None:
    recording = recorded([str(PYTHON), "-u", PROGRAM], ROOT / "plugins" / "plugin-rlm", {})
    print("".join(text for _, text in recording))
    picture = drawn(recording, f"python {PROGRAM}", TITLE)
    (HERE / "eliza-message-loop.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
