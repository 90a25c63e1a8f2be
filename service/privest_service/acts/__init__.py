"""Acts: what people did to owners, keys, data and budgets, each an entry in a signed chain of its owner."""

from privest_service.acts.actor import Actor, acting, because, present, readable
from privest_service.acts.service import record, record_few

__all__ = ["Actor", "acting", "because", "present", "readable", "record", "record_few"]
