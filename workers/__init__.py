"""The Celery worker that ingests queued documents: `celery -A workers.app worker --pool solo`."""

import os

# Set before torch is loaded: threads of one computation sleep while they wait for each other. Beside other work those
# that spin take two to ten times the time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
