"""The dashboard: pages rendered here, small scripts of our own, and /v1 for everything they do."""
