"""Exercises that check themselves: their kinds, the reader's progress, and the course's own exercises."""
