"""Where modules may be imported from. Imports only modules that Python has already loaded, because it runs first."""

from __future__ import annotations

import os
import sys


def search_path() -> tuple[list[str], list[str]]:
    """The folders in which this process looks for modules, as absolute paths, in two lists.

    The second list holds the current folder, unless eqsat itself is there. Python puts that folder first by default, so
    a `random.py` beside a model would otherwise be imported.
    """
    home = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    try:
        here = os.getcwd()
    except FileNotFoundError:  # the folder was deleted, and so were paths relative to it
        here = ""
        entries = [entry for entry in entries if os.path.isabs(entry)]
    entries = list(dict.fromkeys(map(os.path.abspath, entries)))
    later = [entry for entry in entries if os.path.realpath(entry) == here != home]
    own = [entry for entry in entries if entry not in later]
    if home not in map(os.path.realpath, own):
        own.append(home)
    return own, later
