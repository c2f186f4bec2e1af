"""One package per client dialect, the table that lists them, and the handler that runs any of them."""
