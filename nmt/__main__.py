"""Run the command line as `python -m nmt`."""

from nmt.cli.main import main

main()
