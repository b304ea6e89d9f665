"""What the service did for its questions, in numbers."""
