"""The CPU's fast path: C kernels compiled on first use, and a model as a list of ops that they walk through."""
