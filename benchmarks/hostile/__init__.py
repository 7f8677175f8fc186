"""The three programs that a hostile tenant is tried on, and what it tries."""
