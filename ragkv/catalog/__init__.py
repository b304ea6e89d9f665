"""Documents, collections and files of a tenant, and operations on them."""
