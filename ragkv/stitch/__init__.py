"""What to place and what to recompute: decided here, carried out by the engine."""
