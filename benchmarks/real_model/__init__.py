"""Trials with a real, local model: a server with continuous batching, and a driver that resumes."""
