"""API keys, people who sign in, sessions, and limits of use."""
