"""Logs and metrics, made from events."""
