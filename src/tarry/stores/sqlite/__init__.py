"""SQLite: the embedded default."""
