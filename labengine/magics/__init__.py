"""What %lab and %%prompt do: a table of commands, the lab they act on, and the words they answer with."""
