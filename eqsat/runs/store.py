"""Outcomes in one SQLite file, each written as it arrives: a run that was stopped goes on from there."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, fields

from eqsat.errors import InputError
from eqsat.runs.task import Outcome, Task

_TABLE = """CREATE TABLE IF NOT EXISTS kept (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, work TEXT NOT NULL, given TEXT NOT NULL,
    value TEXT, failure TEXT NOT NULL, stage TEXT NOT NULL, trace TEXT NOT NULL,
    seconds REAL NOT NULL, tries INTEGER NOT NULL, digest TEXT NOT NULL)"""
_FIELDS = ", ".join(field.name for field in fields(Outcome))
_COLUMNS = f"key, name, work, given, {_FIELDS}, digest"


class Store(AbstractContextManager["Store"]):
    """Outcomes by what the results depend on (`Task.key`), each with a digest: a damaged one counts as none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create the file; `:memory:` keeps nothing.

        Raises:
            InputError: the file cannot be opened, is none of SQLite's, or holds another table of this name.
        """
        self._path = path
        with self._said("cannot be used for results", "remove it"):
            # Autocommit: an outcome is on its way to the disk when `put` returns. Without a sync for each, only a power
            # cut can lose the last ones.
            self._file = sqlite3.connect(path, isolation_level=None)
            self._file.execute("PRAGMA synchronous = OFF")
            self._file.execute(_TABLE)
            self._file.execute(f"SELECT {_COLUMNS} FROM kept LIMIT 0")

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def get(self, task: Task) -> Outcome | None:
        """The outcome of a task; None if it was not done, was damaged, or failed: then it is worth another try.

        Raises:
            InputError: the file is damaged.
        """
        with self._said("cannot be read", "remove it"):
            row = self._file.execute(f"SELECT {_FIELDS}, digest FROM kept WHERE key = ?", (task.key,)).fetchone()
        if row is None or row[-1] != _digest([task.key, *row[:-1]]):
            return None
        outcome = Outcome(*row[:-1])
        return None if outcome.value is None else outcome

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep an outcome.

        Raises:
            InputError: it cannot be written: the disk is full, or another process is writing all the time.
        """
        given = json.dumps(task.given, sort_keys=True)
        its = [_writable(value) for value in astuple(outcome)]
        row = [task.key, _writable(task.name), task.work, given, *its, _digest([task.key, *its])]
        with self._said("cannot be written", "make room"):
            self._file.execute(f"INSERT OR REPLACE INTO kept ({_COLUMNS}) VALUES (?{', ?' * (len(row) - 1)})", row)

    @contextmanager
    def _said(self, what: str, remedy: str) -> Iterator[None]:
        """Errors of SQLite are said in one line."""
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(f"{self._path}: {what} ({error}); {remedy}, or choose another folder") from None


def _digest(row: Sequence[object]) -> str:
    """Of a row as SQLite gives it back."""
    return hashlib.sha256(repr(row).encode()).hexdigest()


def _writable(value: object) -> object:
    """A value as SQLite takes it: in names of files, Python has half characters for bytes that are no text."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
