"""HTML files that show a recording or a comparison without Python."""
