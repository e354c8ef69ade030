"""Tasks in PostgreSQL, beside the data they belong to."""
