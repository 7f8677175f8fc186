"""Text of HTML pages, and of HTML inside other formats, as Markdown."""

import codecs
import importlib
import re
from functools import cache
from typing import Any, BinaryIO
from urllib.parse import urlsplit

__all__ = ["markdown_of", "text_of"]

_LINKED = frozenset(("", "file", "ftp", "http", "https", "mailto"))
_HIDDEN = ("script", "style", "template")
_DECLARED = re.compile(rb"<(?:meta|\?xml)[^>]{0,400}?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)")
_HEAD_BYTES = 4_096


def text_of(file: BinaryIO) -> str:
    """Return the text of a page."""
    return markdown_of(_decoded(file.read()))


def markdown_of(html: str | bytes) -> str:
    """Return HTML as Markdown; a page that is nested too deeply loses its structure."""
    bs4 = importlib.import_module("bs4")
    soup = bs4.BeautifulSoup(html if isinstance(html, str) else _decoded(html), "html.parser")
    for hidden in soup(_HIDDEN):
        hidden.extract()
    page = soup.body or soup
    try:
        text = str(_converter().convert_soup(page))
    except RecursionError:
        text = str(page.get_text("\n", strip=True))
    return text.strip()


def _decoded(data: bytes) -> str:
    """Decode a page: by its byte order mark, by what it declares, as UTF-8, as Windows-1252."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return data.removeprefix(mark).decode(encoding, "replace")
    declared = _DECLARED.search(data[:_HEAD_BYTES].lower())
    named = [declared[1].decode("ascii", "replace")] if declared else []
    for encoding in (*named, "utf-8"):
        try:
            return data.decode(encoding)
        except (LookupError, UnicodeError):
            continue
    return data.decode("cp1252", "replace")


@cache
def _converter() -> Any:
    """Return a converter that leaves words unchanged, so that they can be searched."""
    markdownify = importlib.import_module("markdownify")

    class Converter(markdownify.MarkdownConverter):  # type: ignore[misc,name-defined]
        def convert_a(self, el: Any, text: str, parent_tags: Any) -> Any:
            if _scheme(el.get("href") or "") not in _LINKED:
                return text
            return super().convert_a(el, text, parent_tags)

        def convert_img(self, el: Any, text: str, parent_tags: Any) -> str:
            source = el.get("src") or ""
            if not source or _scheme(source) == "data":
                source = el.get("data-src") or "image"
            return f"![{' '.join((el.get('alt') or '').split())}]({source})"

        def convert_td(self, el: Any, text: str, parent_tags: Any) -> Any:
            return super().convert_td(el, text.replace("|", "\\|"), parent_tags)

        def convert_th(self, el: Any, text: str, parent_tags: Any) -> Any:
            return super().convert_th(el, text.replace("|", "\\|"), parent_tags)

        def convert_input(self, el: Any, text: str, parent_tags: Any) -> str:
            if el.get("type") != "checkbox":
                return ""
            return "[x] " if el.has_attr("checked") else "[ ] "

    return Converter(
        heading_style=markdownify.ATX,
        escape_asterisks=False,
        escape_underscores=False,
        table_infer_header=True,
    )


def _scheme(address: str) -> str:
    try:
        return urlsplit(address.strip()).scheme.lower()
    except ValueError:
        return "invalid"
