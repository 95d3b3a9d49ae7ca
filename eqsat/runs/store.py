"""Outcomes in one SQLite file, each written as it arrives: a run that was stopped goes on from there."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import AbstractContextManager
from dataclasses import astuple, fields

from eqsat.errors import InputError
from eqsat.runs.task import Outcome, Task

_TABLE = """CREATE TABLE IF NOT EXISTS outcomes (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, work TEXT NOT NULL, given TEXT NOT NULL,
    value TEXT, failure TEXT NOT NULL, stage TEXT NOT NULL, trace TEXT NOT NULL,
    seconds REAL NOT NULL, tries INTEGER NOT NULL)"""
_FIELDS = ", ".join(field.name for field in fields(Outcome))


class Store(AbstractContextManager["Store"]):
    """Outcomes by what the results depend on (`Task.key`)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create the file; `:memory:` keeps nothing.

        Raises:
            InputError: the file cannot be opened, or is none of SQLite's.
        """
        self._path = path
        try:
            # Autocommit: an outcome is on its way to the disk when `put` returns. Without a sync for each, only a power
            # cut can lose the last ones.
            self._file = sqlite3.connect(path, isolation_level=None)
            self._file.execute("PRAGMA synchronous = OFF")
            self._file.execute(_TABLE)
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be used for results ({error}); choose another file") from None

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def get(self, task: Task) -> Outcome | None:
        """The outcome of a task; None if it was not done, or failed: then it is worth another try."""
        row = self._file.execute(f"SELECT {_FIELDS} FROM outcomes WHERE key = ?", (task.key,)).fetchone()
        outcome = Outcome(*row) if row else None
        return None if outcome is None or outcome.value is None else outcome

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep an outcome.

        Raises:
            InputError: it cannot be written: the disk is full, or another process is writing all the time.
        """
        given = json.dumps(task.given, sort_keys=True)
        row = (task.key, task.name, task.work, given, *astuple(outcome))
        try:
            self._file.execute(
                f"INSERT OR REPLACE INTO outcomes (key, name, work, given, {_FIELDS}) VALUES (?{', ?' * 9})",
                [_writable(value) for value in row],
            )
        except sqlite3.Error as error:
            raise InputError(f"{self._path}: cannot be written ({error})") from None


def _writable(value: object) -> object:
    """A value as SQLite takes it: in names of files, Python has half characters for bytes that are no text."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
