"""The database's clock, which all workers share: leases must not depend on how closely the workers' clocks agree."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ragkv.ids import utc_now


def now_of(session: Session) -> datetime:
    """The present moment by the database server's clock. A SQLite file is used on one machine,
    by that machine's clock."""
    if session.get_bind().dialect.name != "postgresql":
        return utc_now()
    moment: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return moment
