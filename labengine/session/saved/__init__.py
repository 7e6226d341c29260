"""Taking a run along: files, frames, scripts, and a saved run opened again."""
