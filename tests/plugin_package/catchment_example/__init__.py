"""One of each thing that a package can add to Catchment; pyproject.toml says what is where."""
