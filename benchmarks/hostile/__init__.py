"""The three programs that a hostile tenant attacks, and its attacks."""
