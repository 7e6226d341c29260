"""Other engines, driven in their own interpreters: one operation at a time, or whole workloads."""
