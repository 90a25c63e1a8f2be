"""The way back to a former release: what waits is given back, then the tables are those of that release."""

from alembic import command
from sqlalchemy import select

from privest_service.database import Database, now
from privest_service.database.migrate import RELEASES, config, require_current
from privest_service.database.tables import import_all
from privest_service.jobs import service as jobs
from privest_service.jobs.models import Job
from privest_service.ledger import charges
from privest_service.settings import Settings


def go_back(settings: Settings, release: str) -> int:
    """Give the tables the form of a former release, with every charge; how many waiting jobs were given back.

    The former release would run waiting jobs by plans that it did not make, and might fail them, charged.

    Raises:
        ValueError: there was no such release, the service still runs, or something was promised since that
            the former release would not keep.
    """
    if release not in RELEASES:
        raise ValueError(f"There is no way back to {release}. Choose one of {', '.join(RELEASES)}.")
    import_all()
    database = Database(settings.migration_url or settings.url, signer=settings.signer)
    try:
        require_current(database)
        database.run(lambda session: jobs.fail_overdue(session, now()))
        with database.read() as session:
            if jobs.in_states(session, "claimed")["claimed"]:
                raise ValueError(
                    "Some jobs are still being run. Stop the service first. Jobs of a service that crashed "
                    "end when PRIVEST_JOB_TIMEOUT and a minute have passed."
                )
            waiting = session.scalars(
                select(Job.id).where(Job.state == "reserved", Job.part_of.is_(None)).order_by(Job.id)
            ).all()
        for job_id in waiting:
            database.run(lambda session, job_id=job_id: charges.void(session, job_id))
        try:
            command.downgrade(config(database), RELEASES[release])
        except RuntimeError as refused:  # by a migration
            raise ValueError(
                f"{release} would not keep what was promised since: {refused}. The tables are as they were. "
                "Mend this version, or restore the backup of before the upgrade."
            ) from None
        return len(waiting)
    finally:
        database.close()
