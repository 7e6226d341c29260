"""The kernel loads a package of this name before piplite; what is in it is not used."""
