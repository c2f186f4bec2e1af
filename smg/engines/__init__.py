"""Engine drivers: one folder per contract, one table row each."""
