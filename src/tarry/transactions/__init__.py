"""The caller's own transactions: how statements get into them, and how their commit is heard."""
