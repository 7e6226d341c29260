"""The history of a session: inputs, fork and rewind, breakpoints, crashes."""
