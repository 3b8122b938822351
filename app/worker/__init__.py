"""What runs without a request."""
