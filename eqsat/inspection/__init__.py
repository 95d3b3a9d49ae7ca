"""Looking inside: why a rule did not fire, the forms of a program, pages that show rules and results."""
