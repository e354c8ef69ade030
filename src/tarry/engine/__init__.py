"""Station 3: notice that a task is due."""
