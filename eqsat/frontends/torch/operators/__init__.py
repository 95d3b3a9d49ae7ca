"""How each ATen operator becomes terms: one row an operator."""
