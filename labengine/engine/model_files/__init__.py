"""Reading and validating the files of a model directory; an error gives the file, the field and the accepted values."""
