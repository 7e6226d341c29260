"""A session's history: inputs, fork and rewind, breakpoints, crashes."""
