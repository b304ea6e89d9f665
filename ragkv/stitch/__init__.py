"""Stitch plans and recompute policies: decided here, carried out by the engine."""
