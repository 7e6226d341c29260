"""The families of models, one file each: config.json, layers, modules and the names of tensors."""
