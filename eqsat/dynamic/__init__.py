"""Programs with named dims: one result for a range of sizes."""
