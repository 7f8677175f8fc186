"""The step before the site is built: which pages there are, and where their links lead."""

import json
import re
from pathlib import Path, PurePosixPath

import pytest

from tests.shape.tree import ROOT
from tools.site import NOT_FOUND, Site, navigation, notebook_page, place_of, unlisted, write_pages


def test_a_link_to_source_code_becomes_a_link_to_a_page(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "loop.py").write_text("x = '''\n````\n'''\n")
    (tmp_path / "docs" / "a.md").write_text(
        "See [it](../src/loop.py#L2), [b](b.md#there) and [both](../README.md).\n\n"
        "```text\n[code](../src/loop.py)\n```\n[web](https://example.org/a.md)\n"
    )
    (tmp_path / "docs" / "b.md").write_text("## There\n")
    (tmp_path / "README.md").write_text("[a](docs/a.md)\n")
    site = Site(tmp_path)
    site.add(tmp_path / "docs" / "a.md")
    assert site.pages[PurePosixPath("a.md")] == (
        "See [it](source/src/loop.py.md), [b](b.md#there) and [both](project/README.md).\n\n"
        "```text\n[code](../src/loop.py)\n```\n[web](https://example.org/a.md)\n"
    )
    assert site.pages[PurePosixPath("project/README.md")] == "[a](../a.md)\n"
    assert "`````python" in site.pages[PurePosixPath("source/src/loop.py.md")]


def test_link_text_may_continue_in_the_next_line(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("A.\n")
    (tmp_path / "LOG.md").write_text(
        "An [open one\n\nand [one of\n  two](docs/a.md), [b](docs/a.md).\n"
    )
    site = Site(tmp_path)
    site.add(tmp_path / "LOG.md")
    assert site.pages[PurePosixPath("project/LOG.md")] == (
        "An [open one\n\nand [one of\n  two](../a.md), [b](../a.md).\n"
    )


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("docs/guides/tools.md", "guides/tools.md"),
        ("docs/images/make.py", "source/docs/images/make.py.md"),
        ("docs/images/a.png", "images/a.png"),
        ("SECURITY.md", "project/SECURITY.md"),
        ("src/rlm/api.py", "source/src/rlm/api.py.md"),
    ],
)
def test_paths_of_pages_on_the_site(path: str, place: str) -> None:
    assert place_of(PurePosixPath(path)) == PurePosixPath(place)


def test_the_navigation_follows_the_list_on_the_first_page() -> None:
    text = "# rlm\n\n## Start\n\n- [A](a.md): a.\n\n## Guides\n\n### Asking\n\n- [`B`](b.md): b.\n"
    assert navigation(text) == [
        {"Home": "README.md"},
        {"Start": [{"A": "a.md"}]},
        {"Guides": [{"Asking": [{"B": "b.md"}]}]},
    ]


def test_notebook_output_becomes_one_line_that_keeps_its_code() -> None:
    shown = {"data": {"text/html": ["<p>a\n  b</p>\n\n<pre class=x>if a:\n    b\n</pre>"]}}
    cell = {"cell_type": "code", "source": ["a"], "outputs": [shown]}
    assert notebook_page(json.dumps({"cells": [cell]})).splitlines()[-1] == (
        '<div class="notebook-output"><p>a b</p> '
        "<pre class=x>if a:&#10;&#32;&#32;&#32;&#32;b&#10;</pre></div>"
    )


def test_an_unlisted_page_is_named() -> None:
    site = Site(ROOT)
    site.pages = {PurePosixPath("a.md"): "", PurePosixPath("source/x.md"): ""}
    assert unlisted(site, [{"Home": "README.md"}]) == ["a.md"]


def test_every_page_of_this_project_is_listed(tmp_path: Path) -> None:
    assert write_pages(ROOT, tmp_path / "site") == []
    assert (tmp_path / "site" / "pages" / "api" / "runs.md").exists()


def test_the_404_page_works_below_any_prefix() -> None:
    assert not re.search(r"""(href|src)=["']?(/|https?:)""", NOT_FOUND)
    assert 'href="./" data-root=""' in NOT_FOUND
    assert 'fetch(root + "404.html"' in NOT_FOUND
