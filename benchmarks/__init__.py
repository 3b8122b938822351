"""How fast the server is, against the official a2a-sdk server and against floors: `python -m benchmarks`."""
