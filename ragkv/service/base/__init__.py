"""What all rooms stand on: database and tables, Redis, the queue, pages of lists."""
