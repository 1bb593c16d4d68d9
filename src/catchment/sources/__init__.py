"""Where events come from: one file per source, one line in SOURCES."""
