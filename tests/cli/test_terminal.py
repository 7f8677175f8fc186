"""What a user in a terminal sees: a harmless answer on stdout, live progress on stderr only."""

from tests.cli.running import CONTROLS, QUESTION, TEXT, in_terminals, rlm
from tests.cli.scripts import AS_CODE, submits
from tests.endpoint import endpoint

HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
OBEYED = (b"\x1b]", b"\x07", b"\x1b[2J", b"\x1b[31m", b"\xc2\x9b", b"\xe2\x80\xae")
"""The parts of the hostile text that a terminal would act on; rich itself writes none of them."""


def test_a_question_in_a_terminal() -> None:
    seen = in_terminals("ask", QUESTION, stdin=TEXT)
    assert (seen.code, seen.stdout) == (0, b"The access code for silver-dolphin is 4821.\r\n")
    assert seen.stderr.startswith(b"No model is configured")
    assert HIDE_CURSOR in seen.stderr
    assert seen.stderr.rindex(SHOW_CURSOR) > seen.stderr.rindex(HIDE_CURSOR)
    end = seen.stderr.rpartition(b"\r\n")[0].rpartition(b"ended: answer")
    assert b" tokens" in end[2]
    assert b"\n" not in end[2].replace(b"\r\n", b"", 1)  # one line of at most two rows


def test_no_context_is_fine_at_a_terminal() -> None:
    with endpoint(submits("FINAL(len(context))")) as server:
        seen = in_terminals("ask", "?", "-m", "openai-compatible/m", LLM_BASE_URL=server.url)
    assert (seen.code, seen.stdout) == (0, b"0\r\n")


def test_hostile_text_is_harmless_everywhere() -> None:
    """In the answer, in the output of cells, in errors, and in the name of the model."""
    code = f"print({AS_CODE})\nFINAL({AS_CODE})\nraise ValueError({AS_CODE})"
    with endpoint(submits(code)) as server:
        seen = in_terminals(
            *("ask", "?", "-m", "openai-compatible/[bold]m", "--verbose"),
            LLM_BASE_URL=server.url,
        )
    assert CONTROLS.search(seen.stdout) is None
    assert seen.stdout.startswith(b"\\x1b]0;pwned\\x07\\x1b[2J\\x1b[31m[bold]x[/bold][link=")
    assert [part for part in OBEYED if part in seen.stderr] == []
    assert b"[bold]x[/bold]" in seen.stderr
    assert b"openai-compatible/[bold]m" in seen.stderr


def test_json_is_harmless_too() -> None:
    with endpoint(submits(f"FINAL({AS_CODE})")) as server:
        seen = in_terminals(
            *("ask", "?", "-m", "openai-compatible/m", "--json", "--quiet"),
            LLM_BASE_URL=server.url,
        )
    assert CONTROLS.search(seen.stdout) is None
    assert seen.stderr == b""


def test_a_dumb_terminal_gets_plain_lines() -> None:
    seen = in_terminals("ask", QUESTION, stdin=TEXT, TERM="dumb")
    assert b"\x1b" not in seen.stderr
    assert b"step 1\r\n" in seen.stderr


def test_a_pipe_gets_plain_lines() -> None:
    done = rlm("ask", QUESTION, stdin=TEXT)
    assert "\x1b" not in done.stderr
    assert "step 1\n" in done.stderr
