"""What a session was given and what it went through: inputs, fork and rewind, breakpoints, crashes."""
