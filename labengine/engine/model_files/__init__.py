"""What the files of a model directory may say: read, validated, and refused with file, field and what would do."""
