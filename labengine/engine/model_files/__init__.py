"""Files of a model directory: read, validated, and refused with the file, the field and the accepted values."""
