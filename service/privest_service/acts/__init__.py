"""Acts: what people did to owners, keys, data and budgets, each an entry in a signed chain of its owner."""

from privest_service.acts.actor import Actor, acting, because, readable
from privest_service.acts.service import record, record_few

__all__ = ["Actor", "acting", "because", "readable", "record", "record_few"]
