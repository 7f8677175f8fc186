"""Reports to the host how a cell ended: the parts of a DONE frame."""

from __future__ import annotations

from . import wire

__all__ = ["parts_of_done"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .finals import Submission
    from .runner import CellRunner, Outcome
    from .variables import Variables

_LEFT_OVER = "[printed by threads or tasks of an earlier turn:]\n"
_DONE_BYTES = wire.MAX_TO_HOST_BYTES - (1 << 20)


def parts_of_done(outcome: Outcome, runner: CellRunner, variables: Variables) -> list[bytes]:
    """Return the parts of a DONE frame; `wire.DONE_COUNTS` describes them."""
    stdout, stdout_chars = runner.stdout.take()
    stderr, stderr_chars = runner.stderr.take()
    left_over = runner.stdout.take_left_over() + runner.stderr.take_left_over()
    if left_over:
        line_end = "\n" if stderr and not stderr.endswith("\n") else ""
        apart = line_end + _LEFT_OVER + left_over
        stderr, stderr_chars = stderr + apart, stderr_chars + len(apart)
    new, changed, deleted = variables.changes()
    words = [word for pair in (*new.items(), *changed.items()) for word in pair]
    parts = [
        wire.DONE_COUNTS.pack(
            stdout_chars, stderr_chars, len(new), len(changed), outcome.interrupted
        ),
        b"",
        wire.to_bytes(stdout),
        wire.to_bytes(stderr),
        wire.to_bytes("\0".join(words + deleted)),  # None of them can contain a NUL.
    ]
    submission, answer_content = outcome.value or (None, None)
    if outcome.error or submission or answer_content is not None:
        texts = _fitting(submission, answer_content, _DONE_BYTES - sum(map(len, parts)))
        how = submission.how if submission else None
        meta = {"error": outcome.error, "how": how, "texts": list(texts)}
        parts[1] = wire.to_json(meta)
        parts += texts.values()
    return parts


def _fitting(
    submission: Submission | None, answer_content: str | None, room_bytes: int
) -> dict[str, bytes]:
    """Return the submitted texts, by name; leave out those that do not fit into one frame."""
    texts = {
        "submission": submission.text if submission else None,
        "answer_content": answer_content,
        "submission_json": submission.json if submission else None,
    }
    fitting = {}
    for name, text in texts.items():
        encoded = None if text is None else wire.to_bytes(text)
        if encoded is not None and len(encoded) <= room_bytes:
            fitting[name] = encoded
            room_bytes -= len(encoded)
    return fitting
