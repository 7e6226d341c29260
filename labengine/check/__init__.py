"""What must hold: invariants of the state, rules on a step's writes, and the oracle over what each slot holds."""
