"""The log of questions, and feedback on answers."""
