"""The proof: campaigns that try to break tarry's promises, and the report of what they found."""
