"""The dashboards of attached streams in a browser page without Jupyter, served only to this machine."""
