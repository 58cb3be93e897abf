"""Whole forwards in one call, compiled on the machine they run on."""
