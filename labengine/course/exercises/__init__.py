"""The course's exercises with their solutions: at least one module for each notebook that has some."""
