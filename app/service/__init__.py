"""What the operations mean, whatever the binding."""
