"""The command line: `catchment --help`."""
