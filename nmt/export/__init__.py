"""From a run folder to what others can load."""
