"""The kernel sets piplite's options here; nothing reads them."""
