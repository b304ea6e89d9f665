"""The service of many tenants around the library: one room a noun, with its tables' statements and its rules."""
