"""Code shared by several commands: options, tables, progress, loading programs."""
