"""Read untrusted files, write results, and find the project's data."""
