"""The dashboard: server-rendered pages with small scripts; every action is a request to /v1."""
