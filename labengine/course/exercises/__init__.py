"""The course's exercises, with their solutions: one module for each notebook that has some."""
