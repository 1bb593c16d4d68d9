"""Where results go: one file per sink, one line in SINKS."""
