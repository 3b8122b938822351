"""What runs without a request: recovery is in `processes`, deliveries are here."""
