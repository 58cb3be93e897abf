"""What the ``load`` command measures, a module for each question."""
