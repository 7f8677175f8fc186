"""Packages that are hostile are refused before any library reads them."""

import io
import zipfile
from collections.abc import Iterator

import pytest

from rlm.context.documents import archive as module
from rlm.context.documents.archive import Archive
from rlm.context.documents.formats import Refused

ENTITY = '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'


def package(**parts: str | bytes) -> io.BytesIO:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    made.seek(0)
    return made


@pytest.mark.parametrize(
    "data",
    [
        ENTITY.encode(),
        b"\xef\xbb\xbf" + ENTITY.encode(),
        b"\n " + ENTITY.encode(),
        ENTITY.encode("utf-16"),
        b"\xfe\xff" + ENTITY.encode("utf-16-be"),
        b'<!DOCTYPE a [<!ENTITY % b SYSTEM "http://127.0.0.1/x">]><a/>',
        b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    ],
)
@pytest.mark.parametrize("name", ["a.xml", "a.bin"])
def test_xml_entities_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(Refused, match="it declares XML entities"):
        Archive(package(**{name: data}))


def test_deeply_nested_xml_is_refused() -> None:
    Archive(package(a="<a>" * 1_000 + "</a>" * 1_000))
    with pytest.raises(Refused, match="nested too deeply"):
        Archive(package(a="<a>" * 1_001 + "</a>" * 1_001))


def test_large_packages_and_packages_with_many_parts_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FREE_BYTES", 3 << 20)
    Archive(package(a=b"x" * (3 << 20)))
    with pytest.raises(Refused, match="it unpacks to 8 MiB; pass part of it, or its text"):
        Archive(package(a=b"x" * (4 << 20), b=b"x" * (4 << 20)))
    monkeypatch.setattr(module, "_MAX_PARTS", 2)
    with pytest.raises(Refused, match="more than 2 parts"):
        Archive(package(a="", b="", c=""))


def test_files_that_are_not_zip_packages_are_refused() -> None:
    with pytest.raises(Refused, match="password-protected or in an older format"):
        Archive(io.BytesIO(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)))
    with pytest.raises(zipfile.BadZipFile):
        Archive(io.BytesIO(b"PK"))


def test_entities_in_unparsed_parts_are_allowed() -> None:
    """Drawings with entities, which nobody parses; a document type without entities; damage."""
    parts: dict[str, str | bytes] = {"media/a.svg": ENTITY, "b.xml": "<!DOCTYPE b><b/>"}
    parts |= {"c.xml": "<c>", "d.png": b"\x89\0"}
    archive = Archive(package(**parts))
    assert archive.names == ("media/a.svg", "b.xml", "c.xml", "d.png")
    assert archive.xml("b.xml").tag == "b"
    with pytest.raises(Refused, match="declares a picture as part of its text"):
        archive.xml("media/a.svg")


def test_relationship_targets_are_resolved_inside_the_package() -> None:
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    targets = ("B.xml", "/b/c.xml", "../../../etc/passwd", "../d.xml")
    relations = "".join(
        f'<Relationship Id="{each}" Type="x/kind" Target="{target}"/>'
        for each, target in enumerate(targets)
    )
    outside = '<Relationship Id="9" Type="x/k" Target="http://a.b" TargetMode="External"/>'
    xml = f'<Relationships xmlns="{space}">{relations}{outside}</Relationships>'
    archive = Archive(package(**{"a/_rels/a.xml.rels": xml, "a/b.xml": "<b/>", "b/c.xml": "<c/>"}))
    assert archive.related("a/a.xml") == {
        "0": ("kind", "a/b.xml"),
        "1": ("kind", "b/c.xml"),
        "2": ("kind", "etc/passwd"),
        "3": ("kind", "d.xml"),
    }
    assert archive.related("nowhere.xml") == {}
    assert "etc/passwd" not in archive


def test_part_names_are_matched_ignoring_case() -> None:
    archive = Archive(package(**{"a/B.xml": "<b/>", "a/b.XML": "<c/>", "a/c.xml": "<c/>"}))
    assert archive.resolve("a/c.xml", "b.xml") == "a/B.xml"
    assert archive.resolve("a/c.xml", "b.XML") == "a/b.XML", "an exact name comes first"
    assert archive.resolve("a/c.xml", "%62.xml") == "a/B.xml"
    assert archive.resolve("a/c.xml", "d.xml") == "a/d.xml"


def test_resolving_many_references_does_not_scan_every_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {f"part{number}.xml": "" for number in range(300)}
    archive = Archive(package(**names))

    class Counted(dict[str, zipfile.ZipInfo]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("it looked at every name")

    monkeypatch.setattr(archive, "_infos", Counted(archive._infos))
    assert archive.resolve("part0.xml", "PART299.xml") == "part299.xml"
    assert archive.resolve("part0.xml", "missing.xml") == "missing.xml"
