"""Many questions at once, by clients in a closed loop or arriving at random."""
