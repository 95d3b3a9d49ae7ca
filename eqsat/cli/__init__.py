"""The command line: one module per command, put together in `eqsat.cli.app`."""
