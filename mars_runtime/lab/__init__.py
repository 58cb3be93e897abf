"""What measures and trains: tasks, training, evaluation, benchmark, verification, profiling.

No server needs it, tasks apart, by which the page judges answers.
"""
