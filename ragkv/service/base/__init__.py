"""The ground of all rooms: database and tables, Redis, the queue, pages of lists."""
