"""CPU kernels: C code compiled on first use, and a model as a list of ops that it executes."""
