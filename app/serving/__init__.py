"""What stands between visitors and the engines: settings, doors, limits, checkpoints."""
