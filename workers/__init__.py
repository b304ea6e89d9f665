"""The Celery worker that ingests queued documents: `celery -A workers.app worker --pool solo`."""
