"""Tables: typed columns, the public recipe that makes numbers of them, and answers in their own units."""
