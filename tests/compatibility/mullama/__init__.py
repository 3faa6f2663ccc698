"""The requests of Mullama's document. What needs no engine is tested in gateway/api/mullama/."""
