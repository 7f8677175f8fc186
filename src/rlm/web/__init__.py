"""What the HTTP faces share: host and origin checks, tokens, event streams, error bodies."""
