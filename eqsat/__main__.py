"""`python -m eqsat` and the `eqsat` console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line; it exits by itself, with the codes of `eqsat.cli.app`."""
    from eqsat.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
