"""Worker processes: what takes long, or what a hostile caller may make crash, is done in them."""
