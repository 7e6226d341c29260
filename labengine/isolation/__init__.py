"""Running foreign code in a forked copy of this process: with limits, in a separate session, its ending reported."""
