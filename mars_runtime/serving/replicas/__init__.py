"""The same endpoint on several processes and machines, by Ray Serve."""
