"""The command line. Wiring only: options are checked here, the work is done elsewhere.

Results go to standard output; progress, logs and errors to standard error. TensorFlow is imported
inside the commands, after arguments and paths have been checked.
"""
