"""Build a corpus, or bring it up to date: read what is new or changed, drop what is gone.

Work is done in batches. A process that is killed loses the batch in progress; the next one
continues after the last finished batch, even in the middle of a large file.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rlm.data.corpus.catalog import DONE, Catalog, Source
from rlm.data.corpus.covering import State, files_of, mount_above, outermost, state_of
from rlm.data.corpus.folder import CorpusFolder
from rlm.data.corpus.fulltext import FullTextWriter, Piece, require_tantivy
from rlm.data.corpus.pieces import Line, record_pieces, records_of, text_pieces
from rlm.data.corpus.records import Fields
from rlm.data.filesystem import skipping
from rlm.data.filesystem.opening import (
    SAMPLE_BYTES,
    Stamp,
    encoding_of,
    is_folder,
    looks_binary,
    open_regular,
)
from rlm.data.filesystem.skipping import Skipped, SkippedCounts
from rlm.data.places import Fetching, Place, mirror, mirrored_places
from rlm.errors import ConfigError

__all__ = ["BatchSize", "Indexed", "update_corpus"]

LINES_SUFFIXES = frozenset((".jsonl", ".ndjson"))
MAX_KIND_CHARS = 12
_PAGE = 500
_STAYS = {State.UNREADABLE: skipping.UNREADABLE, State.NOT_MOUNTED: skipping.NOT_MOUNTED}


@dataclass(frozen=True)
class BatchSize:
    """When a batch is finished: the most that a killed process loses."""

    bytes: int = 256 << 20
    seconds: float = 30.0


@dataclass
class Indexed:
    """What an update has done so far, and what it has to do in all."""

    found_files: int = 0
    unchanged_files: int = 0
    removed_files: int = 0
    files_to_read: int = 0
    bytes_to_read: int = 0
    read_files: int = 0
    documents: int = 0
    bytes: int = 0
    resumed_bytes: int = 0
    finished: bool = False
    """False if the update was stopped before its end."""
    gone_sources: list[str] = field(default_factory=list)
    """Folders and files that were once named and no longer exist."""
    skipped: SkippedCounts = field(default_factory=SkippedCounts)


class _Stopped(Exception):
    """The update was asked to stop."""


def update_corpus(
    path: Path,
    sources: Sequence[Path | Place],
    fields: Fields | None = None,
    *,
    on_progress: Callable[[Indexed], None] = lambda _: None,
    on_fetch: Callable[[Fetching], None] = lambda _: None,
    is_wanted: Callable[[], bool] = lambda: True,
    batch: BatchSize | None = None,
    threads: int | None = None,
) -> Indexed:
    """Index folders and files into a corpus; without any, those that it already covers.

    Places are fetched into the folder of the corpus first. `on_progress` and `on_fetch` are called
    often. Once `is_wanted` returns False, the batch in progress is finished, and the rest is left
    to the next update.
    """
    require_tantivy()  # Without it, no folder is left behind.
    folder = CorpusFolder(path)
    for each in sources:
        if isinstance(each, Path):
            is_folder(each)  # raises if it does not exist
    if not sources:
        folder.read()
    done = Indexed()
    with folder.locked():
        wanted = _settings(folder, fields)
        paths = _fetched(folder, sources, done, on_fetch)
        catalog = Catalog(folder, writes=True)
        try:
            writer = FullTextWriter(folder.index, threads or min(os.cpu_count() or 1, 4))
            try:
                update = _Update(folder, catalog, writer, wanted, done, batch or BatchSize())
                update.on_progress, update.is_wanted = on_progress, is_wanted
                update.run(paths)
            finally:
                writer.close()
        finally:
            catalog.close()
            folder.align_modes()
    return done


def _fetched(
    folder: CorpusFolder,
    sources: Sequence[Path | Place],
    done: Indexed,
    on_fetch: Callable[[Fetching], None],
) -> list[Path]:
    """Return the sources as paths; without any, places that the corpus covers are fetched again."""
    if any(isinstance(each, Place) for each in sources):
        folder.make_private()
    if not sources:
        known, unnamed = mirrored_places(folder.path)
        for shown in unnamed:
            done.skipped.add(Skipped(shown, skipping.UNNAMED))
        for each in known:
            mirror(folder.path, each, on_fetch)
    return [
        mirror(folder.path, each, on_fetch) if isinstance(each, Place) else each for each in sources
    ]


def _settings(folder: CorpusFolder, fields: Fields | None) -> Fields:
    """Return the fields of the corpus, which never change after it was made."""
    given = fields or Fields()
    about = folder.create({"text_field": given.text, "id_field": given.id})
    known = Fields(about.get("text_field"), about.get("id_field"))
    if fields is not None and any(fields) and fields != known:
        raise ConfigError(
            f"{folder} was made with other fields (text: {known.text or 'the usual ones'}, "
            f"id: {known.id or 'the usual ones'}); choose a new folder with -o"
        )
    return known


class _Update:
    def __init__(
        self,
        folder: CorpusFolder,
        catalog: Catalog,
        writer: FullTextWriter,
        fields: Fields,
        done: Indexed,
        batch: BatchSize,
    ) -> None:
        self.on_progress: Callable[[Indexed], None]
        self.is_wanted: Callable[[], bool]
        self._corpus = folder
        self._folder = folder.path.resolve()
        self._catalog = catalog
        self._writer = writer
        self._fields = fields
        self._done = done
        self._size = batch
        totals = catalog.totals()
        self._piece, self._document = totals.last_piece, totals.last_document
        self._current: Source | None = None
        """The source that is being read, and how far."""
        self._start_batch()

    def run(self, sources: Sequence[Path]) -> None:
        self._repair()
        self._catalog.begin_scan()
        known = self._catalog.roots()
        if not sources and not known:
            raise ConfigError("nothing to index: name a folder or files")
        roots = self._roots(sources, known)
        try:
            self._scan(roots)
            for root, name in self._catalog.files_to_read():
                self._read(root, name)
            self._finish_batch()
            self._done.finished = True
        except _Stopped:
            self._finish_batch()

    # -- what has to be done ---------------------------------------------------------------------

    def _repair(self) -> None:
        """Delete from the index what a killed process left there, and finish removals."""
        self._writer.delete_after(self._piece)
        self._finish_removal(self._catalog.removed())

    def _roots(
        self, sources: Sequence[Path], known: list[tuple[int, Path, str]]
    ) -> list[tuple[int, Path]]:
        """Return the roots to scan, each once.

        Remove the documents of roots that are gone, or that other roots cover; roots that may come
        back keep theirs.
        """
        there: list[Path] = []
        for number, path, _ in known:
            state = state_of(path, self._catalog.mount(number))
            if state is State.THERE:
                there.append(path)
            elif state is not State.GONE:
                if not sources:
                    self._done.skipped.add(Skipped(str(path), _STAYS[state]))
            elif self._remove(number):
                self._done.gone_sources.append(str(path))
        named = [path.resolve() for path in sources] or there
        everything = [*named, *there]
        chosen = dict.fromkeys(outermost(each, everything, self._folder) for each in named)
        for number, path, _ in known:
            if outermost(path, [*chosen], self._folder) != path:
                self._remove(number)
        return [(self._catalog.root(each, mount_above(each)), each) for each in chosen]

    def _remove(self, root: int) -> bool:
        """Remove the documents of a root; return whether there were any.

        The root itself stays known: if its folder comes back, it is indexed again.
        """
        numbers = [number for number, _ in self._catalog.unseen(root)]
        self._catalog.mark_removed(numbers)
        self._finish_removal(numbers)
        self._done.removed_files += len(numbers)
        return bool(numbers)

    def _scan(self, roots: list[tuple[int, Path]]) -> None:
        """Compare files with the catalog: note those to read, remove changed and missing ones."""
        gone: list[int] = []
        for root, path in roots:
            seen: list[int] = []
            to_read: list[tuple[int, str]] = []
            unreadable: list[str] = []
            for name, stamp in self._files(path, unreadable):
                source = self._catalog.source(root, name)
                same = source is not None and source.stamp == stamp
                if source is not None and same:
                    seen.append(source.id)
                if source is not None and same and source.state == DONE:
                    self._done.unchanged_files += 1
                else:
                    to_read.append((root, name))
                    self._done.files_to_read += 1
                    self._done.bytes_to_read += stamp.size - (
                        source.done_bytes if source is not None and same else 0
                    )
                if len(seen) + len(to_read) >= _PAGE:
                    self._note(seen, to_read)
            self._note(seen, to_read)
            gone += [
                number
                for number, name in self._catalog.unseen(root)
                if not any(name == each or name.startswith(f"{each}/") for each in unreadable)
            ]
        self._done.removed_files += len(gone)
        self._catalog.mark_removed(gone)
        self._finish_removal(gone)

    def _note(self, seen: list[int], to_read: list[tuple[int, str]]) -> None:
        self._catalog.note_seen(seen)
        self._catalog.note_to_read(to_read)
        seen.clear()
        to_read.clear()
        self._tell()

    def _files(self, path: Path, unreadable: list[str]) -> Iterator[tuple[str, Stamp]]:
        """Yield the files to index, each with its stamp; note the names that can't be read."""
        for name, stamp, reason in files_of(path, self._folder):
            if stamp is not None:
                self._done.found_files += 1
            if reason is not None:
                self._done.skipped.add(Skipped(name or str(path), reason))
            elif stamp is not None:
                yield name, stamp
            if reason == skipping.UNREADABLE:
                unreadable.append(name)

    def _finish_removal(self, numbers: list[int]) -> None:
        for number in numbers:
            self._writer.delete_source(number)
            self._is_new = True
        self._catalog.forget(numbers)
        self._finish_batch()

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, root: int, name: str) -> None:
        path = self._catalog.path_of(root, name)
        try:
            file, stamp = open_regular(path)
        except ConfigError:
            self._done.skipped.add(Skipped(name or path.name, skipping.UNREADABLE))
            return
        with file:
            try:
                reason = self._read_open(root, name, path, file, stamp)
            except OSError:
                reason = skipping.UNREADABLE
        if self._current is not None:  # The file could not be read to its end.
            self._catalog.note_progress(self._current)
            self._current = None
        if reason is not None:
            self._done.skipped.add(Skipped(name or path.name, reason))
        self._done.read_files += 1

    def _read_open(
        self, root: int, name: str, path: Path, file: BinaryIO, stamp: Stamp
    ) -> str | None:
        """Index an open file; return why it is left out or must be read again next time."""
        if (reason := _reason_in(file.read(SAMPLE_BYTES))) is not None:
            self._done.bytes_to_read -= min(stamp.size, self._done.bytes_to_read)
            return reason
        source = self._source(root, name, path, stamp)
        if source is None:
            return skipping.CHANGED
        label = self._catalog.label(root)
        self._index_file(source, file, f"{label}/{name}" if name else label)
        same = Stamp.of(os.fstat(file.fileno())) == stamp
        return None if same else skipping.CHANGED

    def _source(self, root: int, name: str, path: Path, stamp: Stamp) -> Source | None:
        """Return the source to continue or to begin; None if it changed since the scan."""
        known = self._catalog.source(root, name)
        if known is None:
            kind = path.suffix.lower()
            kind = kind if 0 < len(kind) <= MAX_KIND_CHARS and kind[1:].isalnum() else "other"
            return self._catalog.add_source(root, name, kind, stamp)
        if known.stamp == stamp:
            self._done.resumed_bytes += known.done_bytes
            return known
        return None

    def _index_file(self, source: Source, file: BinaryIO, name: str) -> None:
        if source.kind in LINES_SUFFIXES:
            self._index_lines(source, file, name)
        else:
            self._index_text(source, file, name)

    def _index_text(self, source: Source, file: BinaryIO, name: str) -> None:
        """Index a file as one document, in pieces."""
        end = source.stamp.size
        if source.documents == 0:
            self._document += 1
            self._rows.append((self._document, source.id, 0, end, None))
            source = source._replace(documents=1)
            self._count(source, end)
            number = self._document
        else:
            known = self._catalog.document_at(source.id, 0)
            assert known is not None
            number = known.id
        shown = _plain(name)
        for piece in text_pieces(file, source.done_bytes, source.done_lines, end):
            if piece.start:
                self._marks.append((number, piece.start, piece.line))
            self._add(source, number, piece.start, piece.line, piece.text, shown, {})
            lines = piece.line - 1 + piece.text.count("\n")
            source = source._replace(done_bytes=piece.end, done_lines=lines)
            self._progress(source, piece.end - piece.start)
        self._current = None
        self._catalog.note_progress(source._replace(state=DONE))

    def _index_lines(self, source: Source, file: BinaryIO, name: str) -> None:
        """Index each line of a file as a document."""
        before, shown = source.done_bytes, _plain(name)
        for line in records_of(
            file, source.done_bytes, source.done_lines, source.stamp.size, self._fields
        ):
            if isinstance(line.record, str):
                self._done.skipped.add(Skipped(f"{shown}:{line.number}", line.record))
            else:
                source = source._replace(documents=source.documents + 1)
                self._index_record(source, line, shown)
            source = source._replace(done_bytes=line.end, done_lines=line.number)
            self._progress(source, line.end - before)
            before = line.end
        self._current = None
        self._catalog.note_progress(source._replace(state=DONE, done_bytes=source.stamp.size))

    def _index_record(self, source: Source, line: Line, file_name: str) -> None:
        record = line.record
        assert not isinstance(record, str)
        self._document += 1
        name = f"{file_name}#{record.id}" if record.id else f"{file_name}:{line.number}"
        self._rows.append((self._document, source.id, line.start, line.end, name))
        self._count(source, line.end - line.start)
        self._field_names.update(record.fields)
        title = f"{name}\n{record.title}" if record.title else name
        for number, text in record_pieces(record.text):
            self._add(source, self._document, line.start, number, text, title, record.fields)

    # -- batches ---------------------------------------------------------------------------------

    def _start_batch(self) -> None:
        self._rows: list[tuple[int, int, int, int, str | None]] = []
        self._marks: list[tuple[int, int, int]] = []
        self._kinds: Counter[str] = Counter()
        self._field_names: set[str] = set()
        self._batch_documents = 0
        self._is_new = False
        self._batch_bytes = 0
        self._read_bytes = 0
        self._current = None
        self._began = self._told = time.monotonic()

    def _add(
        self,
        source: Source,
        document: int,
        start: int,
        line: int,
        text: str,
        name: str,
        fields: dict[str, Any],
    ) -> None:
        self._piece += 1
        self._is_new = True
        self._writer.add(Piece(source.id, self._piece, document, start, line, text, name, fields))

    def _count(self, source: Source, size_bytes: int) -> None:
        self._kinds[source.kind] += 1
        self._batch_documents += 1
        self._batch_bytes += size_bytes
        self._done.documents += 1

    def _progress(self, source: Source, size_bytes: int) -> None:
        """Note that a source is read up to here; finish the batch if it is large or old enough."""
        self._current = source
        self._read_bytes += size_bytes
        self._done.bytes += size_bytes
        now = time.monotonic()
        if now - self._told > 0.1:
            self._told = now
            self.on_progress(self._done)
            if not self.is_wanted():
                raise _Stopped
        if self._read_bytes >= self._size.bytes or now - self._began >= self._size.seconds:
            self._finish_batch()
        elif len(self._rows) >= 10 * _PAGE:
            self._store_rows()

    def _tell(self) -> None:
        self.on_progress(self._done)
        if not self.is_wanted():
            raise _Stopped

    def _store_rows(self) -> None:
        self._catalog.add_documents(self._rows)
        self._catalog.add_line_marks(self._marks)
        self._rows, self._marks = [], []

    def _finish_batch(self) -> None:
        """Make the batch permanent: first in the index, then in the catalog."""
        self._store_rows()
        self._catalog.add_kinds(self._kinds)
        self._catalog.add_fields(sorted(self._field_names))
        if self._current is not None:
            self._catalog.note_progress(self._current)
        self._writer.commit()
        self._catalog.finish_batch(
            *(self._piece, self._document, self._batch_documents, self._batch_bytes),
            is_new=self._is_new,
        )
        self._corpus.align_modes()
        self._start_batch()


def _plain(name: str) -> str:
    """Return a file name as text that a database can hold."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _reason_in(sample: bytes) -> str | None:
    """Return why a file is left out because of its beginning."""
    if encoding_of(sample) != "utf-8":
        return skipping.NOT_UTF8
    return skipping.BINARY if looks_binary(sample) else None
