"""The description of the API: OpenAPI, complete with examples, and a page without external resources."""
