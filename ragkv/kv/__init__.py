"""Keys and values of chunks: what they are, what they are called, where they lie."""
