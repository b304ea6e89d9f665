"""Collections: named sets of a tenant's documents."""
