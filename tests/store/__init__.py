"""The contract of task stores, on every store there is."""
