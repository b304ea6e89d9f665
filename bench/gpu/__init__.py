"""One command that proves and measures ragkv on a GPU, with random weights and no network."""
