"""What people read of the record: acts, and a report for an auditor."""
