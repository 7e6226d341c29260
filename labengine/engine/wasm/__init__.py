"""A real model in a web page: the C kernels as WebAssembly, driven by Python in the page (Pyodide). No torch."""
