"""Equations of Office documents as LaTeX; symbols stay characters."""

from collections.abc import Callable
from xml.etree.ElementTree import Element

__all__ = ["EQUATION", "EQUATION_PARAGRAPH", "latex"]

_SPACE = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
EQUATION = f"{_SPACE}oMath"
EQUATION_PARAGRAPH = f"{_SPACE}oMathPara"

_LINE_END = " \\\\ "
_OPERATORS = {"∑": "\\sum", "∏": "\\prod", "∫": "\\int", "⋃": "\\bigcup", "⋂": "\\bigcap"}
_ACCENTS = {
    "\u0300": "\\grave",
    "\u0301": "\\acute",
    "\u0302": "\\hat",
    "\u0303": "\\tilde",
    "\u0304": "\\bar",
    "\u0305": "\\overline",
    "\u0307": "\\dot",
    "\u0308": "\\ddot",
    "\u20d7": "\\vec",
}


def latex(element: Element) -> str:
    """Return an equation, or a part of one."""
    name = element.tag.removeprefix(_SPACE)
    return _PARTS.get(name, _children)(element)


def _children(element: Element) -> str:
    return "".join(latex(each) for each in element if not each.tag.endswith("Pr"))


def _text(element: Element) -> str:
    return element.text or ""


def _of(element: Element, name: str) -> str:
    found = element.find(f"{_SPACE}{name}")
    return "" if found is None else latex(found)


def _setting(element: Element, name: str, default: str) -> str:
    """Return a property, such as the character of an operator; empty if it is set to none."""
    found = element.find(f"{_SPACE}{element.tag.removeprefix(_SPACE)}Pr/{_SPACE}{name}")
    return default if found is None else found.get(f"{_SPACE}val", "")


def _scripts(element: Element) -> str:
    sub, sup = _of(element, "sub"), _of(element, "sup")
    return (f"_{{{sub}}}" if sub else "") + (f"^{{{sup}}}" if sup else "")


def _fraction(element: Element) -> str:
    top, bottom = _of(element, "num"), _of(element, "den")
    kind = _setting(element, "type", "bar")
    if kind == "lin":
        return f"{top}/{bottom}"
    return f"\\{'binom' if kind == 'noBar' else 'frac'}{{{top}}}{{{bottom}}}"


def _script(element: Element) -> str:
    return f"{{{_of(element, 'e')}}}{_scripts(element)}"


def _script_before(element: Element) -> str:
    return f"{{}}{_scripts(element)}{{{_of(element, 'e')}}}"


def _root(element: Element) -> str:
    degree = _of(element, "deg")
    return f"\\sqrt{f'[{degree}]' if degree else ''}{{{_of(element, 'e')}}}"


def _operator(element: Element) -> str:
    char = _setting(element, "chr", "∫")
    return f"{_OPERATORS.get(char, char)}{_scripts(element)}{{{_of(element, 'e')}}}"


def _brackets(element: Element) -> str:
    between = _setting(element, "sepChr", "|")
    inner = between.join(latex(each) for each in element.findall(f"{_SPACE}e"))
    return f"{_setting(element, 'begChr', '(')}{inner}{_setting(element, 'endChr', ')')}"


def _function(element: Element) -> str:
    return f"{_of(element, 'fName')}({_of(element, 'e')})"


def _limit(mark: str) -> Callable[[Element], str]:
    return lambda element: f"{_of(element, 'e')}{mark}{{{_of(element, 'lim')}}}"


def _accent(element: Element) -> str:
    char = _setting(element, "chr", "\u0302")
    return f"{_ACCENTS.get(char, char)}{{{_of(element, 'e')}}}"


def _bar(element: Element) -> str:
    side = "over" if _setting(element, "pos", "bot") == "top" else "under"
    return f"\\{side}line{{{_of(element, 'e')}}}"


def _matrix(element: Element) -> str:
    rows = _LINE_END.join(
        " & ".join(latex(cell) for cell in row.findall(f"{_SPACE}e"))
        for row in element.findall(f"{_SPACE}mr")
    )
    return f"\\begin{{matrix}}{rows}\\end{{matrix}}"


def _array(element: Element) -> str:
    return _LINE_END.join(latex(each) for each in element.findall(f"{_SPACE}e"))


_PARTS: dict[str, Callable[[Element], str]] = {
    "acc": _accent,
    "bar": _bar,
    "d": _brackets,
    "eqArr": _array,
    "f": _fraction,
    "func": _function,
    "limLow": _limit("_"),
    "limUpp": _limit("^"),
    "m": _matrix,
    "nary": _operator,
    "rad": _root,
    "sPre": _script_before,
    "sSub": _script,
    "sSubSup": _script,
    "sSup": _script,
    "t": _text,
}
