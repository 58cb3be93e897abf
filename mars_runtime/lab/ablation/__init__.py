"""Training ablations at the scale of mars-tiny: one change at a time, each trained alike."""
