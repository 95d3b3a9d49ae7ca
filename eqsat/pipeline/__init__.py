"""`optimize`, stage by stage, and the report of its result."""
