"""Jobs: the queue of what was asked, and the keys under which it was asked."""
