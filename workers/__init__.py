"""Takes work from the queue: `celery -A workers.app worker --pool solo`."""
