"""Which worker gets a request: policies, admission, retries."""
