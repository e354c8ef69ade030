"""Station 4: attempt due tasks."""
