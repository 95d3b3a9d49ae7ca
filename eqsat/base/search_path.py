"""Where modules may come from. Imports nothing that Python has not loaded by itself: it runs before all else."""

from __future__ import annotations

import os
import sys


def search_path() -> tuple[list[str], list[str]]:
    """The folders that this process looks for modules in, as absolute paths, in two parts.

    The second holds the current folder, unless eqsat itself lies there: Python puts it first without being asked, and
    whatever lies beside a model may be called `random.py`.
    """
    home = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    try:
        here = os.getcwd()
    except FileNotFoundError:  # the folder is gone, and what is relative to it
        here = ""
        entries = [entry for entry in entries if os.path.isabs(entry)]
    entries = list(dict.fromkeys(map(os.path.abspath, entries)))
    later = [entry for entry in entries if os.path.realpath(entry) == here != home]
    own = [entry for entry in entries if entry not in later]
    if home not in map(os.path.realpath, own):
        own.append(home)
    return own, later
