"""Exports of a run as files, frames and scripts, and saved runs opened again."""
