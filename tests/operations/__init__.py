"""The promise of each operation, over a binding."""
