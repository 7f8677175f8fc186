"""How a result shows itself: in print, at a prompt, and in a notebook."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rlm import RLM, Limits, ScriptedClient
from rlm._util.html_card import Card, _timeline, card_html
from rlm._util.safe_markdown import harmless_markdown, html_of
from rlm.events import CallEnded
from rlm.messages import Usage
from rlm.results import RunResult
from rlm.results.cards import Outline, figures, words_of

TEXT = "Minutes\n\nThe harbour opened in 1911.\n" * 3


def asked(*script: str, **options: Any) -> RunResult:
    with RLM(ScriptedClient(script), **options) as engine:
        return engine.ask("When did it open?", TEXT)


def test_the_repr_of_a_reference_completion_is_one_line() -> None:
    with RLM(ScriptedClient(["FINAL(" + "long " * 1_000 + ")"])) as engine:
        made = engine.completion("a context\n" * 100_000)
    shown = repr(made)
    assert len(shown) < 250
    assert "\n" not in shown
    assert "response='long long" in shown


def test_the_repr_of_an_engine_shows_its_model_and_options() -> None:
    assert repr(RLM("offline/extractive")) == "<RLM 'offline/extractive'>"
    engine = RLM("offline/extractive", limits=Limits(max_steps=3, max_cost_usd=0.5))
    assert repr(engine) == "<RLM 'offline/extractive', max_steps=3, max_cost_usd=0.5>"


def test_a_result_prints_as_its_answer_and_its_repr_is_one_line() -> None:
    result = asked("```repl\nFINAL('1911' * 100)\n```")
    assert str(result) == "1911" * 100
    line = repr(result)
    assert len(line) < 200
    assert line.startswith("<RunResult '1911")
    assert "\n" not in line


class Lines:
    """A value whose repr has several lines."""

    def __repr__(self) -> str:
        return "Lines(\n  1,\n)"


def test_the_repr_of_a_typed_answer_is_one_line_too() -> None:
    result = replace(asked("FINAL(x)"), answer=Lines())
    assert repr(result).startswith("<RunResult Lines(   1, ), answer, 1 step, ")


def test_a_result_without_an_answer_prints_the_reason() -> None:
    result = asked("print(1)", "nothing", limits=Limits(max_steps=1, max_calls=0))
    assert (
        str(result)
        == "nothing\n\n(Stopped early: no steps left (max_steps). This is a best guess.)"
    )
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
    assert "<p class=rlm-problem>calls</p>" in empty._repr_html_()
    best = replace(empty, answer="1911", detail="no steps left (max_steps)")
    problem = "Stopped early: no steps left (max_steps). This is a best guess."
    assert problem in best._repr_html_()
    assert str(best) == f"1911\n\n({problem})"
    assert "best guess" in best._repr_markdown_()
    assert best.answer == "1911"
    assert str(replace(best, stop_reason="answer", limit=None)) == "1911"
    assert "best guess" not in str(replace(best, stop_reason="passages", limit=None))


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes.update(attrs)


HARMLESS = {
    *("div", "p", "em", "strong", "code", "pre", "ol", "ul", "li", "blockquote", "hr", "br"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "svg", "rect", "a", "s", "span", "style"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary"),
}
OF_LINKS = {"href", "title", "rel", "target"}
OURS = {*OF_LINKS, "class", "style", "start"}
OURS |= {
    "x",
    "y",
    "width",
    "height",
    "fill",
    "viewbox",
    "preserveaspectratio",
    "role",
    "aria-label",
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
def test_nothing_from_a_model_becomes_active_html(text: str) -> None:
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
    assert {name for name, _ in tags.attributes} <= OURS
    assert all("text-align" in (value or "") for name, value in tags.attributes if name == "style")
    links = {value or "" for name, value in tags.attributes if name == "href"}
    assert all(value.lower().startswith(("http://", "https://")) for value in links)
    assert {value for name, value in tags.attributes if name == "rel"} <= {
        "noopener noreferrer nofollow"
    }


@given(st.text(alphabet="<>![]()\\`*&#;/aimgscript:\n \"'", max_size=60))
def test_markdown_contains_no_html_or_pictures(text: str) -> None:
    from markdown_it import MarkdownIt

    rendered = MarkdownIt("commonmark", {"html": True}).render(harmless_markdown(text))
    assert Tags(rendered).found <= HARMLESS
    assert "<img" not in rendered
    assert "<!--" not in rendered


def test_pathological_markdown_is_rendered_in_bounded_time() -> None:
    for piece in ("[", "![", "*a_", ">", "<", "[a](", "~~a", "- ", "|a|\n|-|\n|", "`"):
        assert len(html_of(piece * 100_000)) < 1_000_000


def test_intricate_markdown_is_shown_unrendered() -> None:
    wide = "|a" * 40 + "|\n" + "|-" * 40 + "|\n" + "a\n" * 1_000
    many = "**x** " + "[" * 2_001
    for text in (wide, many):
        assert html_of(text) == f"<pre>{text}</pre>"
    table = "| a | b |\n|---|---|\n" + "| <i> | 2 |\n" * 300
    assert html_of(table).count("<td>&lt;i&gt;</td>") == 300
    assert "<strong>x</strong>" in html_of("**x** " + "[" * 2_000)
    assert html_of("<b>" + "[" * 2_001).startswith("<pre>&lt;b&gt;[")


def test_only_web_addresses_become_links() -> None:
    shown = html_of(
        "[a](https://x.example/?q=1) [b](javascript:x) [c](data:text/html,x) [d](//x.example) "
        "[e](/local) [f](file:///etc/passwd) <mailto:x@y.z> ![g](https://x.example/p.png)"
    )
    assert shown.count("<a ") == 2  # of a picture, the address is a link
    assert "<img" not in shown
    assert 'rel="noopener noreferrer nofollow"' in shown


def test_a_journaled_run_names_the_command_that_shows_it(tmp_path: Path) -> None:
    assert "rlm show" not in asked("FINAL(x)")._repr_html_()
    usual = asked("FINAL(x)", journal=True)
    assert usual.journal_path is not None
    assert f"rlm show {usual.run_id}</code>" in usual._repr_html_()
    elsewhere = asked("FINAL(x)", journal=tmp_path)
    assert f"rlm show {tmp_path}" in elsewhere._repr_html_()


def test_the_size_of_a_card_is_bounded() -> None:
    code = "```repl\nprint({}, len('" + "x" * 5_000 + "'))\n```"
    script = [f"{'words ' * 1_000}\n{code.format(n)}" for n in range(70)] + ["FINAL(1)"]
    result = asked(*script, limits=Limits(max_steps=80), compaction=False)
    assert result.steps == 71, result.detail
    shown = result._repr_html_()
    assert len(shown) < 500_000
    assert "71 steps" in shown
    assert "21 earlier steps" in shown


def test_long_labels_do_not_make_a_card_large() -> None:
    long = "<" * 1_000_000
    shown = card_html(
        Card(
            None,
            [long],
            query=long,
            problem=long,
            quotes=[(long, long)] * 30,
            rows=[(long, long)] * 30,
            rows_in_all=30,
            command=long,
        )
    )
    assert len(shown) < 150_000
    assert "10 more citations" in shown
    assert "10 more items" in shown


def test_bidirectional_text_cannot_reorder_its_surroundings() -> None:
    shown = card_html(Card("x", ["fact"], quotes=[("\u202etxt.exe", "quote")]))
    assert ":is(code,pre,a,span,em,strong,th,td,li,p){unicode-bidi:isolate}" in shown
    assert "<code>\u202etxt.exe</code>" in shown


def test_many_bars_are_merged_and_not_dropped() -> None:
    outline = Outline()
    for n in range(20_000):
        at = float(n)
        outline.add(
            CallEnded(run_id="a", call_id=str(n), kind="llm", model="m", wall_time=at, seconds=0.5)
        )
    assert len(outline.bars) <= 4_001
    assert max(bar.end for bar in outline.bars) == 19_999
    assert _timeline(outline.bars).count("<rect") <= 600


@given(st.text(alphabet="`~ \nabc", max_size=80))
def test_the_prose_of_a_reply_contains_no_code_fence(text: str) -> None:
    assert words_of(f"before\n```repl\nx = 1\n```\n{text}").startswith("before")
    assert "x = 1" not in words_of(f"before\n```repl\nx = 1\n```\n{text}")


def test_a_very_long_answer_is_cut_in_the_card() -> None:
    result = asked("```repl\nFINAL('x' * 1_000_000)\n```")
    assert len(result._repr_html_()) < 100_000
    assert "more characters" in result._repr_html_()


def test_a_fence_inside_a_code_block_does_not_end_it() -> None:
    code = "FINAL('''see:\n```python\nx = 1\n```\n''')"
    assert words_of(f"I say so.\n```repl\n{code}\n```\nThat is all.", [code]) == (
        "I say so.\n\nThat is all."
    )
    shown = asked(f"I say so.\n```repl\n{code}\n```")._repr_html_()
    assert "<strong>Step 1</strong> I say so.</p>" in shown


def test_the_cost_of_a_run_is_shown_briefly() -> None:
    told = [figures(1, Usage(10, 5, cost_usd=cost), 1.0) for cost in (None, 0.0, 0.00001, 0.5)]
    assert told == [
        ["1 step", "15 tokens", "1.0 s"],
        ["1 step", "15 tokens", "free", "1.0 s"],
        ["1 step", "15 tokens", "under $0.0001", "1.0 s"],
        ["1 step", "15 tokens", "$0.5000", "1.0 s"],
    ]
