"""From a plan to launches: kernel texts, groups, buffers."""
