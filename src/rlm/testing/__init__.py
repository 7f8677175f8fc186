"""For tests of programs that use rlm: scripted models, a fake server, suites for environments."""
