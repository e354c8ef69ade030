"""Station 1: what callers say."""
