"""`python -m workers.alive`: exits with 0 if a worker on this machine reports and makes progress, otherwise with 1 and
the reason.

The health check of a worker's container: it imports next to nothing.
"""

import os
import sys
from contextlib import closing

from ragkv.errors import RagKVError
from ragkv.service.base.redis import connect
from ragkv.service.observe.heartbeats import Heartbeats, this_machine
from ragkv.settings import Settings


def trouble(settings: Settings) -> str | None:
    """The reason why no worker on this machine is working; None if one is."""
    try:
        with closing(connect(settings)) as client:
            here = [beat for beat in Heartbeats(client).read() if beat.worker.startswith(this_machine())]
    except RagKVError as error:
        return str(error)
    return (
        None
        if any(beat.is_working for beat in here)
        else f"no worker here reports and makes progress ({len(here)} known)"
    )


if __name__ == "__main__":
    sys.exit(trouble(Settings.from_env(os.environ)))
