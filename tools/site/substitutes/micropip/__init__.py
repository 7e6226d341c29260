"""A package of this name, which the kernel loads before piplite; its content is not used."""
