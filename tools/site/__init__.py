"""The site, a folder for any static host, and its parts."""
