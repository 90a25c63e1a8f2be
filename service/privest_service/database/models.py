"""All models of all domains, for whoever needs the whole schema."""

from importlib import import_module


def import_all() -> None:
    """Make every table known to `Base.metadata`."""
    for domain in ("acts", "security", "datasets", "connections", "jobs", "notices", "ledger", "published"):
        import_module(f"privest_service.{domain}.models")
