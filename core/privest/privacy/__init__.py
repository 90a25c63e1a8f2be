"""Privacy accounting, calibrated noise, and the gate: the only part of the program that answers from rows."""
