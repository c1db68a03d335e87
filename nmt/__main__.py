"""Run the command line as `python -m nmt`."""

from nmt.cli import main

main()
