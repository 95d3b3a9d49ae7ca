"""The sub-commands of `eqsat`, one module each."""
