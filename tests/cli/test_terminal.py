"""What a user in a terminal sees: a harmless answer on stdout, live progress on stderr only."""

from typing import Any

import pytest

from tests.cli.running import CONTROLS, QUESTION, TEXT, in_terminals, rlm
from tests.cli.scripts import AS_CODE, submits
from tests.endpoint import endpoint

HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
OBEYED = (b"\x1b]", b"\x07", b"\x1b[2J", b"\x1b[31m", b"\xc2\x9b", b"\xe2\x80\xae")
"""The parts of the hostile text that a terminal would act on; rich itself writes none of them."""


def test_a_query_in_a_terminal() -> None:
    seen = in_terminals("ask", QUESTION, stdin=TEXT)
    assert seen.code == 4
    assert seen.stdout.startswith(b"No language model is configured.")
    assert b"   The access code for silver-dolphin is 4821.\r\n" in seen.stdout
    assert HIDE_CURSOR in seen.stderr
    assert seen.stderr.rindex(SHOW_CURSOR) > seen.stderr.rindex(HIDE_CURSOR)
    end = seen.stderr.rpartition(b"\r\n")[0].rpartition(b"ended: passages")
    assert b" tokens" in end[2]
    assert b"\n" not in end[2].replace(b"\r\n", b"", 1)  # one line of at most two rows


def test_a_context_is_not_required_in_a_terminal() -> None:
    with endpoint(submits("FINAL(len(context))")) as server:
        seen = in_terminals("ask", "?", "-m", "openai-compatible/m", LLM_BASE_URL=server.url)
    assert (seen.code, seen.stdout) == (0, b"0\r\n")
    assert b"\nThere is no context: the model answers from what it knows." in seen.stderr


MARKDOWN = "# Opening\n\nIt opens at **05:40**.\nNot before.\n\n- one <tag>\n- `two`\n"


def test_an_answer_in_markdown_is_rendered_in_a_terminal() -> None:
    with endpoint(submits(f"FINAL({MARKDOWN!r})")) as server:
        given = ("ask", "?", "-m", "openai-compatible/m", "-q")
        seen = in_terminals(*given, LLM_BASE_URL=server.url)
    lines = seen.stdout.decode().replace("\x1b[0m", "").split("\r\n")
    assert "It opens at \x1b[1m05:40." in lines
    assert "Not before." in lines
    assert "\x1b[1m • one <tag>" in lines
    assert lines[0] == "\x1b[1;4mOpening"
    assert "**" not in seen.stdout.decode()
    assert seen.stderr == b""


@pytest.mark.heavy
def test_raw_prints_answers_without_rendering() -> None:
    with endpoint(submits(f"FINAL({MARKDOWN!r})")) as server:
        given = ("ask", "?", "-m", "openai-compatible/m", "-q", "--raw")
        seen = in_terminals(*given, LLM_BASE_URL=server.url)
    assert seen.stdout.decode() == MARKDOWN.replace("\n", "\r\n") + "\r\n"


@pytest.mark.heavy
def test_text_without_markup_is_printed_unchanged() -> None:
    answer = "a  line   with spaces\n  and 2 * 3 * 4 < 5 snake_case_name\n" + "x" * 300
    with endpoint(submits(f"FINAL({answer!r})")) as server:
        given = ("ask", "?", "-m", "openai-compatible/m", "-q")
        seen = in_terminals(*given, LLM_BASE_URL=server.url)
    assert seen.stdout.decode() == answer.replace("\n", "\r\n") + "\r\n"


@pytest.mark.heavy
def test_link_targets_are_shown_and_pictures_are_not() -> None:
    answer = "[my bank](https://evil.example/x) ![p](https://evil.example/p.png) **x**"
    with endpoint(submits(f"FINAL({answer!r})")) as server:
        given = ("ask", "?", "-m", "openai-compatible/m", "-q")
        seen = in_terminals(*given, LLM_BASE_URL=server.url)
    assert b"\x1b]8" not in seen.stdout
    assert b"https://evil.example/x" in seen.stdout


def test_verbose_shows_prose_and_code_in_colour_and_why_a_cell_failed() -> None:
    reply = "I divide by zero.\n```repl\nx = 1 / 0\n```"

    def fails_once(body: dict[str, Any]) -> str:
        return reply if len(body["messages"]) == 2 else "FINAL(one)"

    with endpoint(fails_once) as server:
        given = ("ask", "?", "-m", "openai-compatible/m", "--verbose")
        seen = in_terminals(*given, LLM_BASE_URL=server.url)
        plain = in_terminals(*given, LLM_BASE_URL=server.url, NO_COLOR="1")
    stderr = seen.stderr.decode()
    assert "\x1b[2m: \x1b[0mI divide by zero." in stderr
    assert "\x1b[2m> \x1b[0mx = \x1b[94m1" in stderr
    assert "\x1b[1;91m! ZeroDivisionError: division by zero\x1b[0m" in stderr
    assert "! ZeroDivisionError: division by zero\r\n" in plain.stderr.decode()


def test_hostile_text_is_escaped_everywhere() -> None:
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


@pytest.mark.heavy
def test_json_is_escaped_too() -> None:
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
