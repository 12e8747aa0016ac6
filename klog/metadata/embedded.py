"""The metadata store of a single broker: the tree in memory, stored in one SQLite file.

Every write is durable (fsync of SQLite's write-ahead log) before it is visible or answered. Only one process
at a time can open the file. It has one session, which ends with the process, and with it every ephemeral
node.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from klog.formats.constants import INT32_MAX, INT64_MAX
from klog.metadata.errors import StoreFailedError, StoreLockedError
from klog.metadata.local import SharedTree, TreeSession
from klog.metadata.store import NodeStat, missing_parents
from klog.metadata.tree import ROOT, Commit, NodeRecord, NodeTree
from klog.metadata.watches import Dispatcher
from klog.storage.log.scheduler import wall_clock_ms

_log = logging.getLogger(__name__)

FILE_NAME = "klog-metadata.sqlite"
_SCHEMA_VERSION = 1

# Of a damaged file, SQLite's message may quote text that is no UTF-8.
_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
_RESTORE: Final = (
    "restore a copy of it; without one, move it away and run 'klog adopt' (docs/broker.md, Lost metadata)"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY,
    data BLOB,
    version INTEGER NOT NULL,
    created_zxid INTEGER NOT NULL,
    modified_zxid INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    ephemeral_owner INTEGER NOT NULL,
    child_changes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tree (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 0),
    last_zxid INTEGER NOT NULL
);
INSERT OR IGNORE INTO tree VALUES (0, 0);
"""


class EmbeddedStore(TreeSession):
    """A MetadataStore in one file, usually `FILE_NAME` in the first log directory.

    Raises StoreLockedError if another process has it open, StoreFailedError if it cannot be opened or has
    another format.
    """

    def __init__(self, file: Path, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._journal = SqliteJournal(file)
        try:
            shared = SharedTree(self._journal, now_ms)
            self._dispatcher = Dispatcher("klog-metadata-watches")
            super().__init__(shared, self._dispatcher.deliver)
        except StoreFailedError:
            self._journal.close()
            raise

    def close(self) -> None:
        """Ends the session, after the watches that have fired have been called.

        If the disk cannot be written, the session's ephemeral nodes stay in the file, and the next start
        deletes them.
        """
        try:
            super().close()
        except StoreFailedError as error:
            _log.warning("the metadata store is closed without its last changes: %s", error)
        finally:
            self._dispatcher.stop()
            self._journal.close()


class SqliteJournal:
    """Stores the tree in SQLite, one row for each node, under an exclusive lock while it is open."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failing = False
        try:
            self._database = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
        except _ERRORS as error:
            raise self._failure(error) from error
        try:
            # Exclusive from the first statement: a second process gets an error and does not wait.
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except _ERRORS as error:
            self._database.close()
            raise self._failure(error) from error
        except StoreFailedError:
            self._database.close()
            raise

    def _prepare(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _SCHEMA_VERSION):
            raise StoreFailedError(
                f"{self._file} was written by another klog (schema {version})",
                cure="use that version of klog",
            )
        # Text that is no UTF-8 makes its row invalid, not the whole file.
        self._database.text_factory = lambda raw: raw.decode(errors="surrogateescape")
        self._database.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT")
        (found,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreFailedError(f"{self._file} is damaged: {found}", cure=_RESTORE)
        self._database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    @contextmanager
    def batch(self) -> Iterator[None]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("COMMIT")
        except _ERRORS as error:
            self._roll_back()
            failure = self._failure(error)
            if not self._failing:
                _log.error("the metadata cannot be changed: %s", failure)
            self._failing = True
            raise failure from error
        if self._failing:
            _log.info("the metadata can be changed again")
        self._failing = False

    def _roll_back(self) -> None:
        # SQLite has rolled back by itself after a full disk or an I/O error, and raises an error here.
        with suppress(*_ERRORS):
            self._database.execute("ROLLBACK")

    def write(self, commit: Commit) -> None:
        """Must be called inside `batch`, which turns SQLite's errors into StoreFailedError."""
        execute = self._database.execute
        for path, record in commit.changes.items():
            if record is None:
                execute("DELETE FROM node WHERE path = ?", (path,))
            else:
                row = (path, record.data, *record.stat, record.child_changes)
                execute("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        execute("UPDATE tree SET last_zxid = ?", (commit.zxid,))

    def load(self) -> NodeTree:
        try:
            rows = self._database.execute("SELECT * FROM node").fetchall()
            last = self._database.execute("SELECT last_zxid FROM tree").fetchone()
        except _ERRORS as error:
            raise self._failure(error) from error
        records = records_of(rows, str(self._file))
        return NodeTree(records, last_zxid(last, records.values(), str(self._file)))

    def close(self) -> None:
        self._database.close()

    def _failure(self, error: sqlite3.Error | UnicodeDecodeError) -> StoreLockedError | StoreFailedError:
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreLockedError(
                f"{self._file} is in use by another broker", cure="stop it, or use other log.dirs"
            )
        damages = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        code = getattr(error, "sqlite_errorcode", None)
        is_damaged = code in damages or isinstance(error, UnicodeDecodeError)
        cure = _RESTORE if is_damaged else "check the disk and the file's permissions"
        return StoreFailedError(f"{self._file}: {error}", cure=cure)


# -- Checks the rows of the embedded store's file when it is opened ------------------------------------------
# What another program or a bad disk wrote there must not stop the broker. A row that is no node is left out,
# and stays in the file. A node whose parent is missing keeps its place.

_Cell: TypeAlias = str | bytes | int | float | None
Row: TypeAlias = tuple[_Cell, ...]

# Path, data, version, created_zxid, modified_zxid, created_ms, ephemeral_owner, child_changes.
_COLUMNS: Final = 8
_LARGEST: Final = (INT32_MAX, INT64_MAX - 1, INT64_MAX - 1, INT64_MAX, INT64_MAX, INT32_MAX - 1)


def records_of(rows: Iterable[Row], file: str) -> dict[str, NodeRecord]:
    """The nodes of all valid rows by path, with their parents. The errors that are logged name `file`."""
    records: dict[str, NodeRecord] = {}
    for row in rows:
        why = _invalid(row)
        if why is not None:
            _log.error("%s: the row of node %.200r is left out: %s", file, row[0], why)
            continue
        *stat, child_changes = (number for number in row[2:] if isinstance(number, int))
        data = row[1] if isinstance(row[1], bytes) else None
        records[str(row[0])] = NodeRecord(data, NodeStat(*stat), child_changes)
    for path in sorted(records):
        for parent in missing_parents(path):
            if parent not in records:
                _log.error(
                    "%s: node %.200r is missing above %.200r; an empty one stands for it", file, parent, path
                )
                records[parent] = NodeRecord(None, NodeStat(0, 0, 0, 0))
    return records


def last_zxid(stored: Row | None, records: Iterable[NodeRecord], file: str) -> int:
    """The number of the last change: at least that of every node, so that later changes get higher ones."""
    highest = max((max(each.stat.created_zxid, each.stat.modified_zxid) for each in records), default=0)
    number = None if stored is None else stored[0]
    if not isinstance(number, int) or not highest <= number < INT64_MAX:
        _log.error("%s: the number of the last change is %.100r, %d is used instead", file, number, highest)
        return highest
    return number


def _invalid(row: Row) -> str | None:
    """What is wrong with a row, or None."""
    if len(row) != _COLUMNS:
        return f"it has {len(row)} columns, not {_COLUMNS}"
    path, data, *numbers = row
    if not isinstance(path, str) or not _is_path(path):
        return "it has no valid path"
    if data is not None and not isinstance(data, bytes):
        return "its data are no bytes"
    for number, largest in zip(numbers, _LARGEST, strict=True):
        if not isinstance(number, int) or not 0 <= number <= largest:
            return f"{number!r:.100} is no number of a node"
    return None


def _is_path(path: str) -> bool:
    if path == ROOT:
        return True
    return path.startswith(ROOT) and all(path[1:].split("/")) and path.isprintable()
