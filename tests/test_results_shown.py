"""How a result shows itself: in print, at a prompt, and in a notebook."""

from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, Limits, ScriptedClient
from rlm.results import RunResult

TEXT = "Minutes\n\nThe harbour opened in 1911.\n" * 3


def asked(*script: str, **options: Any) -> RunResult:
    with RLM(ScriptedClient(script), **options) as engine:
        return engine.ask("When did it open?", TEXT)


def test_a_result_prints_as_its_answer_and_shows_as_one_line() -> None:
    result = asked("```repl\nFINAL('1911' * 100)\n```")
    assert str(result) == "1911" * 100
    line = repr(result)
    assert len(line) < 200
    assert line.startswith("<RunResult '1911")
    assert "\n" not in line


def test_without_an_answer_it_says_why() -> None:
    result = asked("print(1)", "nothing", limits=Limits(max_steps=1, max_calls=0))
    assert result.answer is None or str(result) == str(result.answer)
    empty = RunResult(
        answer=None,
        stop_reason="limit",
        answer_source="none",
        run_id="one",
        steps=1,
        usage=result.usage,
        cost_usd=None,
        seconds=1,
        limit="calls",
    )
    assert str(empty) == "(no answer: limit (calls))"
    assert "No answer." in empty._repr_html_()


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes.update(name for name, _ in attrs)


HARMLESS = {
    *("div", "p", "em", "strong", "code", "pre", "ol", "ul", "li", "blockquote", "hr", "br"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "svg", "rect", "title"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


def test_the_card_has_markdown_citations_and_a_timeline() -> None:
    result = asked(
        "```repl\ncite('The harbour opened in 1911.')\nFINAL('It opened in **1911**.')\n```"
    )
    shown = result._repr_html_()
    assert "<strong>1911</strong>" in shown
    assert "The harbour opened in 1911." in shown
    assert "<svg" in shown
    assert result.run_id in shown


@given(st.text(max_size=200))
def test_nothing_that_a_model_says_becomes_active(text: str) -> None:
    hostile = (
        f"<script>x</script>![a](http://x/y.png) [b](javascript:x) <img src=x onerror=y> {text}"
    )
    result = asked("FINAL(x)")
    made = RunResult(
        answer=hostile,
        stop_reason="error",
        answer_source="asked",
        run_id=text,
        steps=1,
        usage=result.usage,
        cost_usd=0.0,
        seconds=1.0,
        detail=hostile,
        events=result.events,
    )
    tags = Tags(made._repr_html_())
    assert tags.found <= HARMLESS
    assert not {"href", "src", "onerror", "onclick"} & tags.attributes


def test_a_very_long_answer_is_cut_in_the_card() -> None:
    result = asked("```repl\nFINAL('x' * 1_000_000)\n```")
    assert len(result._repr_html_()) < 100_000
    assert "more characters" in result._repr_html_()
