"""Station 5: what became of an attempt."""
