"""Model families, one file each: fields of config.json, layers, modules and names of tensors."""
