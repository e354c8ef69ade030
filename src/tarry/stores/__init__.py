"""Station 2: where tasks rest."""
