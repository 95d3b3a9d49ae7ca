"""`python -m eqsat` and the `eqsat` console script."""

from __future__ import annotations

import sys

from eqsat.search_path import search_path


def main() -> None:
    """Run the command line; it exits by itself, with the codes of `eqsat.cli.app`."""
    from eqsat.cli.app import main as run

    run()


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] in search_path()[1]:
        del sys.path[0]  # `python -m` has put the current folder there; the console script would not
    main()
