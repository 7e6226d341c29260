"""The dashboards of attached streams in a browser page without Jupyter, served to this machine alone."""
