"""Documents, collections and files: what a tenant has, and what can be done with it."""
