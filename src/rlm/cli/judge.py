"""`rlm judge`: tags, a score and comments of a run."""

import click

from rlm.cli._options import complete_recorded

__all__ = ["judge"]

EXAMPLES = """\b
Examples:
  rlm judge last --score 1 --tag good
  rlm judge 5d41402a --untag draft --comment "The date is wrong."
  rlm judge last
  rlm runs --where "tag=good"
  rlm export --format sft --where "score>0.8" > turns.jsonl
"""


@click.command(epilog=EXAMPLES)
@click.argument("recorded", metavar="RUN|LOG", shell_complete=complete_recorded)
@click.option("--score", type=float, metavar="N", help="Give a score: any number; 0 to 1 is usual.")
@click.option("--no-score", is_flag=True, help="Remove the score.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Add a tag; may be repeated.")
@click.option("--untag", "untags", multiple=True, metavar="TAG", help="Remove a tag.")
@click.option("--comment", metavar="TEXT", help="Add a comment.")
@click.option("--uncomment", metavar="ID", help="Remove a comment, by the id that is printed.")
@click.option("--json", "as_json", is_flag=True, help="Print the judgment as JSON.")
def judge(
    recorded: str,
    score: float | None,
    no_score: bool,
    tags: tuple[str, ...],
    untags: tuple[str, ...],
    comment: str | None,
    uncomment: str | None,
    as_json: bool,
) -> None:
    """Tag, score and comment on a run.

    Prints the tags, score and comments of the run. RUN is the id of a run, its first or last part,
    or the word last. LOG is a file with one root run. The viewer shows them too; `rlm rm` removes
    them with the run.
    """
    from rlm.cli import _judging

    if score is not None and no_score:
        raise click.UsageError(
            "--score and --no-score can't be combined", click.get_current_context()
        )
    change = _judging.change_of(
        score=score, no_score=no_score, tags=tags, untags=untags, comment=comment, gone=uncomment
    )
    _judging.judge_recorded(recorded, change, as_json=as_json)
