"""The only room that knows where tasks are kept."""
