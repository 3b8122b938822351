"""The A2A agent server template: clone it, rewrite `app/agent.py`, run it."""
