"""API keys, sessions, and limits of use."""
