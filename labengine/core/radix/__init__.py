"""A prefix tree beside the prefix map: it decides what is found, kept and evicted. Source: SGLang's radix attention."""
