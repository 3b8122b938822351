"""A2A on paper, against the official types and the specification."""
