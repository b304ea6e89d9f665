"""What the attackers and the honest tenant know of the service. It loads nothing: attackers begin at once."""

import msgspec


class World(msgspec.Struct):
    """Where the service listens, and keys: the honest tenant's, and two of each hostile one."""

    port: int
    honest: str
    hostile: list[str]
