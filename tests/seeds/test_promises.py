"""The promises of the documents: none is forgotten, each is shown by a test, the page is fresh."""

from collections import Counter

import pytest

from docs.reference import promises
from docs.reference.promises import Document, Promise
from tests.seeds.nodes import exists
from tests.seeds.reading import DIGESTS, text_of

ALL = promises.documents()
SYSTEMS = promises.systems()
MARKUP = ("#", "```")


def span(text: str) -> range:
    """`7` or `7-9`, as line numbers."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def unclaimed(document: Document) -> list[int]:
    """Return lines with content that no entry covers; headings and fences have none."""
    spans = [*document.background, *(each.lines for each in document.promises)]
    claimed = {number for text in spans for number in span(text)}
    lines = enumerate(text_of(document.number).splitlines(), 1)
    said = [number for number, line in lines if line.strip() and not line.startswith(MARKUP)]
    return [number for number in said if number not in claimed]


def test_every_document_has_a_list_of_promises() -> None:
    assert [document.number for document in ALL] == list(DIGESTS)


@pytest.mark.parametrize("document", ALL, ids=lambda each: each.number)
def test_every_line_belongs_to_an_entry(document: Document) -> None:
    assert unclaimed(document) == []
    last = len(text_of(document.number).splitlines())
    for each in document.promises:
        assert span(each.lines), each
        assert span(each.lines)[-1] <= last


@pytest.mark.parametrize("document", [*ALL, *SYSTEMS], ids=lambda each: each.number)
def test_every_promise_names_an_existing_test(document: Document) -> None:
    missing = [each.name for each in document.promises if not exists(each.test)]
    assert missing == []
    names = Counter(each.promise for each in document.promises)
    assert [name for name, count in names.items() if count > 1] == []


def test_the_compatibility_page_matches_the_lists() -> None:
    page = promises.PAGE.read_text("utf-8")
    assert promises.written(page) == page, "run `make docs`"


def test_a_line_without_an_entry_is_noticed() -> None:
    document = ALL[2]
    fewer = document._replace(promises=document.promises[1:])
    assert unclaimed(fewer) == list(span(document.promises[0].lines))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            'a = { lines = "1", promise = "p", state = "perhaps", test = "t" }',
            "the state is one of",
        ),
        ('a = { lines = "1", promise = "p", state = "needs a service", test = "t" }', "say why"),
        ('a = { lines = "1", promise = "p", state = "works", test = "t", x = 1 }', "unknown x"),
    ],
)
def test_wrong_entries_are_reported(
    tmp_path_factory: pytest.TempPathFactory, line: str, words: str
) -> None:
    folder = tmp_path_factory.mktemp("promises")
    (folder / "009.toml").write_text(f'title = "t"\nbackground = []\n[promises]\n{line}\n')
    with pytest.raises(ValueError, match=words):
        promises.documents(folder)


def test_the_counts_add_up() -> None:
    one = Promise("a", "1", "it | works", "works", "tests/x.py::test_y")
    other = one._replace(name="b", state="works differently", why="because")
    page = promises.render((Document("009", "Title", (), (one, other)),))
    assert "| 009: Title | 1 | 1 | 0 | 2 |" in page
    assert "| all | 1 | 1 | 0 | 2 |" in page
    assert "| 1 | it \\| works | works | | [`test_y`](../../tests/x.py) |" in page
