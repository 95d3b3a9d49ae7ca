"""The language of rules: patterns, guards, and the tables of layout arithmetic with what they promise."""
