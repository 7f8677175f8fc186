"""`rlm provenance`: check that the record of a gateway is intact."""

import json
from pathlib import Path
from typing import Any

import click

from rlm._util.text import counted

__all__ = ["provenance"]

EXAMPLES = """\b
Examples:
  rlm provenance verify record.jsonl
  rlm provenance verify record.jsonl --seal 4f0c…e1
  rlm provenance verify record.jsonl --session s_Xy… --json
"""


@click.group(epilog=EXAMPLES)
def provenance() -> None:
    """Check the record of what a gateway showed."""


@provenance.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--seal",
    metavar="SEAL",
    help="A seal noted earlier, which FILE must contain; without it, a missing end goes unnoticed.",
)
@click.option("--session", metavar="ID", help="Also count the lines of this session.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.pass_context
def verify(
    ctx: click.Context, file: Path, seal: str | None, session: str | None, as_json: bool
) -> None:
    """Check that no line of FILE was changed, removed or inserted.

    Exit code 0 means that the file is intact, 1 that it is not.
    """
    found = findings(file, seal, session)
    if as_json:
        click.echo(json.dumps(found))
    else:
        from rlm.cli._output import show_facts

        show_facts(report(found))
    ctx.exit(0 if found["whole"] else 1)


def findings(file: Path, seal: str | None, session: str | None) -> dict[str, Any]:
    """Return what the file says about itself, as plain data."""
    from rlm.gateway.provenance import verify as verified

    seen: dict[str, int] = {"session": 0}
    kept_at: list[int] = []

    def look(entry: dict[str, Any], at: str) -> None:
        seen["session"] += entry.get("session") == session
        if at == seal:
            kept_at.append(entry["number"])

    verdict = verified(file, look)
    problem = verdict.problem
    if problem is None and seal is not None and not kept_at:
        problem = f"it does not contain the seal {seal}: its end was cut off, or it is another file"
    return {
        "whole": problem is None,
        "problem": problem,
        "lines": verdict.lines,
        "seal": verdict.seal,
        **({"sealed_at_line": kept_at[0]} if kept_at else {}),
        **({} if session is None else {"session": session, "session_lines": seen["session"]}),
    }


def report(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the findings as named lines for people."""
    if not found["lines"] and not found["whole"]:
        what = "This is no provenance file of rlm mcp, or all of it was changed"
        return [("result", f"{what}: {found['problem']}.")]
    facts = [("lines", f"{found['lines']:,} intact")]
    if "session" in found:
        facts.append(("session", f"{found['session']}: {counted(found['session_lines'], 'line')}"))
    if "sealed_at_line" in found:
        after = found["lines"] - found["sealed_at_line"]
        facts.append(
            ("kept seal", f"line {found['sealed_at_line']:,}; {counted(after, 'line')} after it")
        )
    facts.append(("last seal", found["seal"]))
    facts.append(("result", "The file is intact." if found["whole"] else f"{found['problem']}."))
    return facts
