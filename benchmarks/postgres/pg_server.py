"""A PostgreSQL of its own for each program, synced, with room in memory for a million tasks."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from tarry.testing.proof.postgres_server import PostgresServer, unavailable

SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "10s",
}


@contextmanager
def serving(options: argparse.Namespace) -> Iterator[PostgresServer]:
    """Serve the programs of this folder; *options* may name a folder for the files."""
    missing = unavailable()
    if missing:
        raise SystemExit(missing)
    # As root the server runs as somebody else, who may not enter every folder.
    folder = options.folder if os.geteuid() and options.folder else None
    with closing(PostgresServer(settings=SETTINGS, folder=folder and str(folder))) as server:
        yield server
