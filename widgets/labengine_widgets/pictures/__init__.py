"""Static text and SVG pictures of the pool, and plotly figures of a run."""
