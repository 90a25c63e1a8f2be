"""The ledger as a file: written out, with its jobs and receipts, and verified line by line."""
