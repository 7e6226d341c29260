"""%lab and %%prompt: a table of commands, the lab that they act on, and the texts that they print."""
