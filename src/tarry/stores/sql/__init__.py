"""What SQL media share."""
