"""The mock's side of each engine contract, one file each; section numbers are those of spec engine-contract."""
