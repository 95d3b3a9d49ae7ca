"""Kernel candidates: bounded cuts of the e-graph that one kernel computes, grown, joined and priced."""
