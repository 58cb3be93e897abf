"""Training of low-rank updates that act on mask tokens alone, over a frozen base."""
