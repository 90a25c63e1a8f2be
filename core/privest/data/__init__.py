"""Data of a run: public facts, tables and their row encoder, records, and transforms of rows."""
