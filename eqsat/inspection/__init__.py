"""Looking inside: why a rule did not fire, the forms of a program, rules and results on one page."""
