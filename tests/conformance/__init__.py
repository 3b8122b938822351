"""The official conformance kit, run from its own checkout against the conformance agent: `make conformance`."""
