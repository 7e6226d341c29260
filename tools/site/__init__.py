"""The site, a folder for any static host, and the code that builds its parts."""
