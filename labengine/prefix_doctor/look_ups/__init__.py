"""Each look-up of a recording, and the cause of every token that it did not find."""
