"""The public test kit; nothing in tarry imports it."""
