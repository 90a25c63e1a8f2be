"""The laws of what the generator draws, each held against its own by a test and tried on a wrong sampler."""
