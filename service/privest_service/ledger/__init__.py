"""The ledger: accounts with limits, movements of budget in a hash chain, and the jobs that cause them."""
