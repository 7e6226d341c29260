"""Checks: invariants of the state, rules on a step's writes, and the oracle that knows each slot's content."""
