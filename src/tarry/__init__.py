"""tarry: delayed tasks that are never lost, never early and on the millisecond."""
