"""Equations of Office become LaTeX."""

from xml.etree import ElementTree

import pytest

from rlm.context.documents.equations import latex

SPACE = "http://schemas.openxmlformats.org/officeDocument/2006/math"


def run(text: str) -> str:
    return f"<m:r><m:rPr/><m:t>{text}</m:t></m:r>"


def part(name: str, text: str) -> str:
    return f"<m:{name}>{run(text)}</m:{name}>"


E, SUB, SUP = part("e", "x"), part("sub", "i"), part("sup", "2")


@pytest.mark.parametrize(
    ("xml", "text"),
    [
        (run("a") + run("+b"), "a+b"),
        (f"<m:sSup>{E}{SUP}</m:sSup>", "{x}^{2}"),
        (f"<m:sSubSup>{E}{SUB}{SUP}</m:sSubSup>", "{x}_{i}^{2}"),
        (f"<m:sPre>{SUB}{SUP}{E}</m:sPre>", "{}_{i}^{2}{x}"),
        (f"<m:f>{part('num', 'a')}{part('den', 'b')}</m:f>", "\\frac{a}{b}"),
        (
            f'<m:f><m:fPr><m:type m:val="lin"/></m:fPr>{part("num", "a")}{part("den", "b")}</m:f>',
            "a/b",
        ),
        (f"<m:rad>{part('deg', '3')}{E}</m:rad>", "\\sqrt[3]{x}"),
        (f"<m:rad><m:deg/>{E}</m:rad>", "\\sqrt{x}"),
        (
            f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{SUB}{SUP}{E}</m:nary>',
            "\\sum_{i}^{2}{x}",
        ),
        (f"<m:nary>{E}</m:nary>", "\\int{x}"),
        (f"<m:d>{E}{E}</m:d>", "(x|x)"),
        (f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val=""/></m:dPr>{E}</m:d>', "[x"),
        (f"<m:func>{part('fName', 'sin')}{E}</m:func>", "sin(x)"),
        (f"<m:limLow>{E}{part('lim', 'n→∞')}</m:limLow>", "x_{n→∞}"),
        (f"<m:acc>{E}</m:acc>", "\\hat{x}"),
        (f'<m:bar><m:barPr><m:pos m:val="top"/></m:barPr>{E}</m:bar>', "\\overline{x}"),
        (
            f"<m:m><m:mr>{E}{E}</m:mr><m:mr>{E}</m:mr></m:m>",
            r"\begin{matrix}x & x \\ x\end{matrix}",
        ),
        (f"<m:eqArr>{E}{E}</m:eqArr>", r"x \\ x"),
        (f"<m:box>{E}</m:box><m:unknown>{run('y')}</m:unknown>", "xy"),
        (
            "<m:f/><m:sSup/><m:nary/><m:d/><m:m/>",
            "\\frac{}{}{}\\int{}()\\begin{matrix}\\end{matrix}",
        ),
    ],
)
def test_parts_of_equations(xml: str, text: str) -> None:
    assert latex(ElementTree.fromstring(f'<m:oMath xmlns:m="{SPACE}">{xml}</m:oMath>')) == text
