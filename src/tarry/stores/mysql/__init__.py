"""MySQL and MariaDB: the house database, and the caller's own transaction."""
