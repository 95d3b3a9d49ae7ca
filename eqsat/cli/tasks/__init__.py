"""The sub-commands of `eqsat` that are runs of many tasks, one module each."""
