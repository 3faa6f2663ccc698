"""One file for each family of endpoints; each translates to and from the middle language (OpenAI's)."""
