"""Promises about processes, kept by processes."""
