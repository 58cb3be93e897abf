"""The Compare tab: pinned runs, and runs that visitors bring."""
